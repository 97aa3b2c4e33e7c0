"""Targets, losses, learning-rate control and the learner."""
