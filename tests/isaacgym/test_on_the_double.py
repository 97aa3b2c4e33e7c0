"""The tests under `double/`, in a process of their own: Isaac Gym must be imported before torch, its double too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOUBLES = ROOT / "tests" / "doubles"


def test_the_engine_on_its_double() -> None:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{DOUBLES}", "ISAACGYM_DOUBLE": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/isaacgym/double"]
    done = subprocess.run(command, cwd=str(ROOT), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout[-8000:]}\n{done.stderr[-2000:]}"
