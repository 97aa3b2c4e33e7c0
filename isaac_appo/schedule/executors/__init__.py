"""Interpreters of a program: ``inline`` (one thread) and ``threads`` (one thread per stream)."""
