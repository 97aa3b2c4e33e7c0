from __future__ import annotations

import subprocess
from pathlib import Path
from typing import List

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("found", "lines"),
    [
        ("/usr/bin/python3.8", ["make test", "make test-py38"]),
        ("", ["make test", "No Python 3.8 here: the tests on Isaac Gym's Python were not run (make test-py38)."]),
    ],
)
def test_the_lane_of_python_38_runs_where_there_is_one_and_is_missed_aloud(
    tmp_path: Path, found: str, lines: List[str]
) -> None:
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\n[ "$*" = "-s find-py38" ] && echo "{found}" || echo "make $*"\n')
    make.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    done = subprocess.run(
        ["bash", str(ROOT / ".ci" / "run")], env=environment, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout.splitlines() == lines


@pytest.mark.parametrize(("code", "is_taken"), [(0, True), (127, False)])
def test_make_names_a_python_38_only_if_it_works(tmp_path: Path, code: int, is_taken: bool) -> None:
    """The shim of a pyenv version that is not active is on PATH and fails when it is run."""
    candidate = tmp_path / "python3.8"
    candidate.write_text(f"#!/bin/sh\nexit {code}\n")
    candidate.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "PYENV_ROOT": str(tmp_path)}
    command = ["make", "-s", "-C", str(ROOT), "find-py38"]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    assert (done.stdout.strip() == str(candidate)) == is_taken
