"""The image's start command and health check, run as they are, outside Docker."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, List, Optional, Tuple

import pytest
import yaml

from tests.docker.dockerfile import ROOT, instructions


def words(name: str) -> List[str]:
    """The exec form of ENTRYPOINT or CMD."""
    parsed = instructions((ROOT / "docker" / "Dockerfile").read_text())
    (text,) = (i.text for i in parsed if i.name == name)
    return [str(word) for word in json.loads(text)]


def call(command: List[str], folder: Path) -> Tuple[int, str]:
    path = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(part for part in path if part)}
    done = subprocess.run(
        command, cwd=str(folder), env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )
    return done.returncode, done.stdout.decode()


def entrypoint() -> List[str]:
    """What the ENTRYPOINT's script runs, as declared in setup.py; this environment may lack the script itself."""
    (program,) = words("ENTRYPOINT")
    declared = re.findall(r'"([\w-]+) = ([\w.]+):(\w+)"', (ROOT / "setup.py").read_text())
    (module, function) = {name: (module, function) for name, module, function in declared}[program]
    return [sys.executable, "-c", f"import sys; from {module} import {function}; sys.exit({function}())"]


def check_health(folder: Path) -> Tuple[int, str]:
    return call([sys.executable, "-I", str(ROOT / "docker" / "healthcheck.py")], folder)


def put_run(folder: Path, seed: int, age_s: float, host: Optional[str] = None) -> None:
    run = folder / "runs" / "Ant" / "default" / f"s{seed}"
    run.mkdir(parents=True)
    now = time.time()
    (run / "run.json").write_text(json.dumps({"host": host or socket.gethostname()}))
    (run / "heartbeat.json").write_text(json.dumps({"unix_time": now - age_s}))
    os.utime(str(run / "heartbeat.json"), (now - age_s, now - age_s))


@pytest.mark.parametrize(
    ("runs", "code"),
    [
        ([], 1),
        ([(1, 5.0)], 0),
        ([(1, 1e4)], 1),
        ([(1, 1e4), (2, 5.0)], 0),  # an older run of the same container
        ([(1, 1e4), (2, 5.0, "another")], 1),  # a container that shares the folder
    ],
)
def test_healthy_is_a_fresh_heartbeat_of_this_container(tmp_path: Path, runs: List[Any], code: int) -> None:
    for run in runs:
        put_run(tmp_path, *run)
    found, said = check_health(tmp_path)
    assert found == code, said
    assert ("last heartbeat" if runs else "No run of this container") in said


def test_a_run_without_a_heartbeat_is_not_healthy(tmp_path: Path) -> None:
    put_run(tmp_path, 1, 5.0)
    next(tmp_path.rglob("heartbeat.json")).unlink()
    assert check_health(tmp_path)[0] == 1


def test_the_age_allowed_can_be_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_run(tmp_path, 1, 1000.0)
    monkeypatch.setenv("HEARTBEAT_MAX_AGE_S", "100000")
    assert check_health(tmp_path)[0] == 0


def test_the_images_default_command_is_the_help() -> None:
    code, said = call([*entrypoint(), *words("CMD")], ROOT)
    assert code == 0 and said.startswith("usage: isaac-appo COMMAND")


def test_the_composed_command_trains_where_the_health_check_looks(tmp_path: Path) -> None:
    services = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text())["services"]
    small = [
        "task=Cartpole",
        "num_envs=32",
        "train.params.config.minibatch_size=64",
        "max_iterations=2",
        "sim=mujoco",
        "report.console=off",
    ]
    command = [word for word in services["mujoco"]["command"] if not word.startswith(("task=", "num_envs="))]
    code, said = call([*entrypoint(), *command, *small], tmp_path)
    assert code == 0, said
    code, said = check_health(tmp_path)
    assert code == 0 and str(Path("runs", "Cartpole")) in said
