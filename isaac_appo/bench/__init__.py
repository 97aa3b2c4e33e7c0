"""Measurements of a whole machine: what a trainer costs, and what overlap is worth on it."""
