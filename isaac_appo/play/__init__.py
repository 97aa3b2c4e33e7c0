"""Watching a policy: load it, let it act, draw what happens."""
