"""Asynchronous PPO for GPU-vectorised robot simulation. Importing this package imports neither torch nor an engine."""

__version__ = "0.1.0"
