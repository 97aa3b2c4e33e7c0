"""Tasks: one class in one file each, on any engine, found by name in `registry.py`."""
