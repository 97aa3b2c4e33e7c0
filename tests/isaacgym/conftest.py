"""Tests of engine `isaacgym` on its double.

Isaac Gym must be imported before torch, so these tests have a process of their own: `test_on_the_double.py` is all that
the ordinary test process collects here, and it starts that process with the double's folder on the path.
"""

from __future__ import annotations

import os

collect_ignore = [] if os.environ.get("ISAACGYM_DOUBLE") else ["double"]
