"""What every test shares: one thread per library, and property tests that draw the same cases every time."""

from __future__ import annotations

import os
from typing import List

import pytest
from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")


def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    """Tests marked `gpu` are skipped, and told why, where there is none. `gpu(physics=False)`: Warp suffices."""
    marks = ((item, item.get_closest_marker("gpu")) for item in items)
    marked = [(item, mark) for item, mark in marks if mark is not None]
    if marked:
        from isaac_appo.sim.registry import missing_for_warp

        for item, mark in marked:
            reason = missing_for_warp(**mark.kwargs)
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))
