"""``isaac-appo train`` with W&B: every sink gets the same metrics, and no service stops a run."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import List

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isaac_appo.commands.main import main
from isaac_appo.report.metrics import METRICS, MIRRORED
from tests.report.wandb_standins import FakeWandb, logged

SMALL = [
    "task=Cartpole",
    "num_envs=32",
    "schedule.policy_threads=1",
    "schedule.learner_threads=1",
    "train.params.config.horizon_length=8",
    "train.params.config.minibatch_size=256",
    "train.params.config.mini_epochs=1",
    "eval.enabled=False",
    "report.console=plain",
    "report.plot=False",
]


def test_every_sink_gets_every_metric_and_all_are_documented(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", FakeWandb())
    module = sys.modules["wandb"]
    words = ["wandb_activate=True", "wandb_artifacts=True", "train.params.config.save_best_after=1"]
    assert main(["train", *SMALL, *words, "max_iterations=4", f"run_root={tmp_path}"]) == 0
    assert "WARNING" not in capsys.readouterr().out
    run = tmp_path / "Cartpole" / "default" / "s42"
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    events = EventAccumulator(str(run / "tb"))
    events.Reload()
    axes = {"update", "env_steps", "elapsed_s"}
    in_csv = {key for row in rows for key, cell in row.items() if cell} - axes
    in_wandb = {key for row in module.runs[0].rows for key in row} - axes  # type: ignore[attr-defined]
    mirrors = {f"{name}/{axis}" for name in MIRRORED for axis in ("iter", "time")}
    in_tensorboard = set(events.Tags()["scalars"]) - mirrors
    assert in_csv == in_wandb == in_tensorboard
    aliases = {"perf/_fps", "train/version_diff_avg", "train/version_diff_min", "train/version_diff_max"}
    ledger = {key for key in METRICS if key.startswith(("ledger/", "wait/", "idle/"))}
    assert aliases | ledger <= in_wandb
    wandb_run = module.runs[0]  # type: ignore[attr-defined]
    assert [row["env_steps"] for row in wandb_run.rows] == [256, 512, 768, 1024]
    assert wandb_run.settings["config"]["num_envs"] == 32 and wandb_run.settings["name"] == "Cartpole-default-s42"
    best = json.loads((run / "checkpoints" / "best.json").read_text())["file"]
    assert [Path(path).name for artifact in wandb_run.artifacts for path, *_ in artifact.files] == [best]


def test_a_missing_package_is_said_before_anything_is_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["train", *SMALL, "wandb=online", f"run_root={tmp_path}/runs"]) == 2
    assert "pip install 'isaac-appo[wandb]'" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()


def services_of(pid: int) -> List[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
        except OSError:
            continue
        if name == "wandb-core" and int(rest.split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def test_a_killed_service_does_not_stop_training(tmp_path: Path) -> None:
    run = tmp_path / "Cartpole" / "default" / "s42"
    words = [*SMALL, "wandb=offline", "max_iterations=100000", f"run_root={tmp_path}", "report.tensorboard=False"]
    env = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    command = [sys.executable, "-m", "isaac_appo", "train", *words]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env)

    def wait_for(text: str) -> None:
        deadline = time.monotonic() + 120
        while text not in (run / "log.txt").read_text() if (run / "log.txt").exists() else True:
            assert process.poll() is None and time.monotonic() < deadline, text
            time.sleep(0.05)

    try:
        wait_for("W&B: offline")
        (service,) = services_of(process.pid)
        os.kill(service, signal.SIGKILL)
        wait_for("logged offline from here")
        before = json.loads((run / "heartbeat.json").read_text())["update"]
        while json.loads((run / "heartbeat.json").read_text())["update"] < before + 5:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 143 and out.count("WARNING: W&B") == 1 and "Traceback" not in out, out
    with open(run / "metrics.csv") as file:
        steps = [int(row["env_steps"]) for row in csv.DictReader(file)]
    assert steps == [256 * update for update in range(1, len(steps) + 1)]
    kept = [row["env_steps"] for row in logged(run / "wandb")]
    assert kept[-1] == steps[-1] and set(kept) <= set(steps)
