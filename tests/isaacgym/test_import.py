"""Isaac Gym must come before torch, and where it cannot come at all the answer comes before torch, too."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOUBLES = ROOT / "tests" / "doubles"
TRAIN = "from isaac_appo.commands.main import main; import sys; code = main(['train', 'task=Ant', 'sim=isaacgym'{}])"
HEAVY = "print(code, [n for n in ('torch', 'warp', 'mujoco') if n in sys.modules])"


def python(code: str, *folders: Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(map(str, (ROOT, *folders)))
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, cwd=str(cwd), env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("more", ["", ", 'test=True', 'checkpoint=none'"])
def test_without_isaac_gym_the_answer_comes_before_torch(more: str) -> None:
    done = python(f"{TRAIN.format(more)}; {HEAVY}")
    assert done.stdout.strip() == "2 []", done.stderr
    version = ".".join(map(str, sys.version_info[:3]))
    assert f"sim = isaacgym: Isaac Gym is not installed for {sys.executable} (Python {version};" in done.stderr
    assert "`isaac-appo doctor`" in done.stderr and "sim=auto or sim=mujoco" in done.stderr


@pytest.mark.parametrize(
    ("files", "reason"),
    [
        ([], "Isaac Gym is not installed"),  # a folder of that name, such as an unpacked archive
        (["__init__.py"], "isaacgym does not import (ModuleNotFoundError: No module named 'isaacgym.gymapi')"),
    ],
)
def test_a_package_that_does_not_import_is_told_with_its_own_reason(
    files: List[str], reason: str, tmp_path: Path
) -> None:
    (tmp_path / "isaacgym").mkdir()
    for file in files:
        (tmp_path / "isaacgym" / file).write_text("")
    done = python(f"{TRAIN.format('')}; {HEAVY}", tmp_path, cwd=tmp_path)
    assert done.stdout.strip() == "2 []" and reason in done.stderr, done.stderr


def test_torch_before_isaac_gym_is_refused_by_the_command_and_by_the_engine() -> None:
    engine = (
        "import torch; from isaac_appo.env.task_env import make_env; from isaac_appo.sim.engine import EngineError\n"
        "try:\n    make_env('Ant', {}, engine='isaacgym')\nexcept EngineError as error:\n    print(error)\n"
    )
    done = python(f"{engine}{TRAIN.format('')}; print(code)", DOUBLES)
    refusal = "torch was imported before isaacgym, which Isaac Gym refuses"  # Warp greets an old Python before it
    assert any(line.startswith(refusal) for line in done.stdout.splitlines()), done.stdout
    assert done.stdout.splitlines()[-1] == "2" and "torch was imported before isaacgym" in done.stderr


def test_the_package_itself_refuses_to_come_after_torch() -> None:
    done = python("import torch, isaacgym", DOUBLES)
    assert "ImportError: PyTorch was imported before isaacgym modules." in done.stderr


def test_train_as_a_user_types_it_in_lockstep_on_the_double(tmp_path: Path) -> None:
    words = ["task=Cartpole", "sim=isaacgym", "schedule=lockstep", "num_envs=16", "max_iterations=3"]
    words += [f"run_root={tmp_path}", "report.console=plain", "task.env.episodeLength=50"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{DOUBLES}", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "isaac_appo", "train", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Engine: sim=isaacgym on cpu" in done.stdout and "3 of 3" in done.stdout
