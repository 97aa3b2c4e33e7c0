"""What every test shares: one thread per library, and property tests that draw the same cases every time."""

from __future__ import annotations

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")
