"""Sweeps: many trainings from one command line, each in a process of its own."""
