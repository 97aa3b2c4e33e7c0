"""Vectorised environments: the contract (`vec_env.py`) and our own tasks on an engine (`task_env.py`)."""
