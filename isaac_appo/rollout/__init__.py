"""Slabs (persistent rollout tensors) and the collector that fills them."""
