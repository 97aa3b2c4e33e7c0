"""``isaac-appo train`` as a user runs it: whole runs on small problems, resumes, refusals, signals, crashes."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Dict, List

import pytest
import torch

from isaac_appo.checkpoint import CheckpointWarning, list_checkpoints, read_marker
from isaac_appo.commands.main import main

SMALL = [
    "task=Cartpole",
    "num_envs=32",
    "train.params.config.horizon_length=8",
    "train.params.config.minibatch_size=64",
    "train.params.config.mini_epochs=2",
    "eval.num_envs=8",
    "report.console=plain",
    "report.interval=0.2",
]


def train(root: Path, *more: str) -> int:
    return main(["train", *SMALL, f"run_root={root}", *more])


def checkpoint(root: Path, step: int, experiment: str = "default", seed: int = 42) -> Dict[str, Any]:
    path = root / "Cartpole" / experiment / f"s{seed}" / "checkpoints" / f"ckpt_{step:09d}.pth"
    return torch.load(path, weights_only=True)  # type: ignore[no-any-return]


def assert_equal(a: Any, b: Any, where: str = "") -> None:
    """Equal to the bit, all the way down."""
    assert type(a) is type(b), where
    if isinstance(a, dict):
        assert list(a) == list(b), where
        for key in a:
            if key != "elapsed_s":
                assert_equal(a[key], b[key], f"{where}.{key}")
    elif isinstance(a, list):
        assert len(a) == len(b), where
        for i, (x, y) in enumerate(zip(a, b)):
            assert_equal(x, y, f"{where}[{i}]")
    elif isinstance(a, torch.Tensor):
        assert torch.equal(torch.nan_to_num(a), torch.nan_to_num(b)), where
    else:
        assert a == b or a != a, where


def test_a_run_leaves_all_that_it_promises(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "max_iterations=6", "train.params.config.save_frequency=2") == 0
    out = capsys.readouterr().out
    run = tmp_path / "Cartpole" / "default" / "s42"
    for text in (
        "Engine: sim=mujoco on cpu",
        "mean return",
        "Evaluation:  return",
        "8 episodes",
        "-m isaac_appo train task=Cartpole",
    ):
        assert text in out
    assert str(run) in out and "max_iterations=12" in out
    for name in ("config.yaml", "overrides.txt", "metrics.csv", "log.txt", "curve.png", "heartbeat.json"):
        assert (run / name).stat().st_size > 0, name
    assert list((run / "tb").iterdir()) and (tmp_path / "latest").resolve() == run.resolve()
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "complete" and record["exit_code"] == 0 and record["evaluation"]["episodes"] == 8
    assert sorted(p.name for p in (run / "checkpoints").glob("*.pth")) == [f"ckpt_{n:09d}.pth" for n in (2, 4, 6)]
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["update"]) for row in rows] == [1, 2, 3, 4, 5, 6]
    assert float(rows[-1]["ledger/trained"]) + float(rows[-1]["ledger/masked_dead"]) == 6 * 256
    assert [float(row["lag/max"]) for row in rows] == [0, 1, 1, 1, 1, 1]


def test_checkpoints_have_rl_games_keys_and_rl_games_loads_them(tmp_path: Path) -> None:
    train(tmp_path, "max_iterations=2")
    state = checkpoint(tmp_path, 2)
    expected = {"model", "epoch", "frame", "optimizer", "last_mean_rewards", "env_state", "isaac_appo"}
    assert set(state) == expected
    assert state["epoch"] == 2 and state["frame"] == 2 * 256
    assert "a2c_network.actor_mlp.0.weight" in state["model"] and "running_mean_std.running_mean" in state["model"]
    assert state["model"]["running_mean_std.running_mean"].dtype == torch.float64


@pytest.mark.parametrize("schedule", [["schedule=sync"], ["schedule=lockstep"]])
def test_10_updates_equal_5_and_resume_and_5_through_the_file(tmp_path: Path, schedule: List[str]) -> None:
    train(tmp_path, "experiment=straight", "max_iterations=10", *schedule)
    train(tmp_path, "experiment=split", "max_iterations=5", *schedule)
    train(tmp_path, "experiment=split", "max_iterations=10", *schedule)
    straight, split = checkpoint(tmp_path, 10, "straight"), checkpoint(tmp_path, 10, "split")
    assert_equal(straight, split)
    train(tmp_path, "experiment=other", "max_iterations=10", "seed=7", *schedule)
    other = checkpoint(tmp_path, 10, "other", seed=7)
    assert not torch.equal(other["model"]["a2c_network.mu.weight"], straight["model"]["a2c_network.mu.weight"])


def test_the_curve_goes_on_after_a_resume_without_running_backwards(tmp_path: Path) -> None:
    train(tmp_path, "max_iterations=3")
    train(tmp_path, "max_iterations=5")
    with open(tmp_path / "Cartpole" / "default" / "s42" / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["update"]) for row in rows] == [1, 2, 3, 4, 5]
    assert all(float(a["elapsed_s"]) < float(b["elapsed_s"]) for a, b in zip(rows, rows[1:]))


def test_a_complete_run_says_so_when_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "max_iterations=2")
    assert train(tmp_path, "max_iterations=2") == 0
    assert "Nothing is left to train: max_iterations=2 is reached; use max_iterations=4" in capsys.readouterr().out


def test_resume_refuses_a_changed_run_and_names_what_changed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, "max_iterations=2")
    assert train(tmp_path, "max_iterations=4", "num_envs=16", "schedule.lag=2") == 2
    err = capsys.readouterr().err
    assert "num_envs=16 (the checkpoint has 32)" in err and "schedule.lag=2 (the checkpoint has 1)" in err
    assert "checkpoint=PATH experiment=NEW" in err


def test_a_resume_with_another_advantage_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "max_iterations=2", "advantage=gae")
    train(tmp_path, "max_iterations=3", "advantage=gae")
    assert "was trained with" not in "".join(capsys.readouterr())
    train(tmp_path, "max_iterations=4")
    words = (
        "trained with advantage=gae; the run goes on with advantage=vtrace advantage.rho_bar=3.0 advantage.c_bar=3.0"
    )
    assert words in "".join(capsys.readouterr())


def test_a_missing_resume_is_an_error_with_candidates(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "max_iterations=2")
    assert train(tmp_path, "experiment=new", f"resume={tmp_path}/Cartpole/default/s43") == 2
    err = capsys.readouterr().err
    assert "does not exist" in err and "ckpt_000000002.pth" in err
    assert not (tmp_path / "Cartpole" / "new" / "s42" / "metrics.csv").exists()


def test_resume_never_refuses_a_used_directory(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "max_iterations=2")
    assert train(tmp_path, "max_iterations=2", "resume=never") == 2
    assert "experiment=NAME" in capsys.readouterr().err


def test_checkpoint_starts_from_weights_and_test_evaluates_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(tmp_path, "max_iterations=3")
    path = tmp_path / "Cartpole" / "default" / "s42" / "checkpoints" / "ckpt_000000003.pth"
    assert train(tmp_path, "max_iterations=1", "experiment=tuned", f"checkpoint={path}") == 0
    assert f"Weights and statistics taken from {path}" in capsys.readouterr().out
    count = checkpoint(tmp_path, 1, "tuned")["model"]["running_mean_std.count"]
    assert count > checkpoint(tmp_path, 3)["model"]["running_mean_std.count"]
    results = []
    for _ in range(2):
        assert train(tmp_path, "test=True", f"checkpoint={path}") == 0
        results.append(next(line for line in capsys.readouterr().out.splitlines() if "return" in line))
    assert results[0] == results[1] and "update 3" in results[0]
    assert train(tmp_path, "test=True") == 2
    assert "checkpoint=FILE" in capsys.readouterr().err


def test_a_checkpoint_of_another_network_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train(tmp_path, "max_iterations=1")
    path = tmp_path / "Cartpole" / "default" / "s42" / "checkpoints" / "ckpt_000000001.pth"
    wider = "train.params.network.mlp.units=[8,8]"
    assert train(tmp_path, "max_iterations=1", "experiment=b", f"checkpoint={path}", wider) == 2
    assert "does not fit train.params.network" in capsys.readouterr().err


def test_a_file_that_holds_no_policy_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"optimizer": {}, "epoch": 3}, tmp_path / "other.pth")
    assert train(tmp_path, f"checkpoint={tmp_path / 'other.pth'}") == 2
    assert "holds no 'model' but optimizer, epoch" in capsys.readouterr().err


def test_cuda_is_refused_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert train(tmp_path, "rl_device=cuda:0") == 2
    assert "rl_device = cuda:0" in capsys.readouterr().err


@pytest.mark.parametrize("num_envs", [1, 7, 64, 4095, 4099])
def test_any_number_of_envs_trains(tmp_path: Path, num_envs: int) -> None:
    words = ["task=Cartpole", f"num_envs={num_envs}", "max_iterations=1", "eval.enabled=False", f"run_root={tmp_path}"]
    assert main(["train", *words, "train.params.config.mini_epochs=1", "report.console=off"]) == 0
    path = tmp_path / "Cartpole" / "default" / "s42" / "metrics.csv"
    with open(path) as file:
        row = next(csv.DictReader(file))
    assert float(row["ledger/trained"]) + float(row["ledger/masked_dead"]) == num_envs * 16
    assert float(row["loss/skipped_steps"]) == 0


def start(root: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "isaac_appo", "train", *SMALL, f"run_root={root}", "max_iterations=100000", *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def wait_for_updates(root: Path, updates: int) -> None:
    path = root / "Cartpole" / "default" / "s42" / "heartbeat.json"
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if path.exists() and json.loads(path.read_text())["update"] >= updates:
            return
        time.sleep(0.1)
    raise AssertionError(f"no {updates} updates within 60 s")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_saves_and_ends_with_its_code_and_the_run_resumes(tmp_path: Path, number: int, code: int) -> None:
    process = start(tmp_path)
    wait_for_updates(tmp_path, 2)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == code, out
    run = tmp_path / "Cartpole" / "default" / "s42"
    assert json.loads((run / "run.json").read_text())["status"] == "interrupted"
    saved = json.loads((run / "checkpoints" / "latest.json").read_text())["step"]
    assert "Resume with" in out and train(tmp_path, f"max_iterations={saved + 2}") == 0
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == saved + 2


def test_kill_9_loses_no_more_than_since_the_last_checkpoint(tmp_path: Path) -> None:
    process = start(tmp_path, "train.params.config.save_frequency=2")
    wait_for_updates(tmp_path, 6)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    run = tmp_path / "Cartpole" / "default" / "s42"
    # What has its marker is saved, whether or not the kill came before latest.json was turned to it.
    marker = read_marker(list_checkpoints(run / "checkpoints")[-1])
    assert marker is not None and marker["step"] >= 4
    saved = marker["step"]
    with warnings.catch_warnings():
        # The kill may fall between a file and its marker: such a file is passed over, and the run says so.
        warnings.simplefilter("ignore", CheckpointWarning)
        assert train(tmp_path, f"max_iterations={saved + 1}") == 0
    assert json.loads((run / "checkpoints" / "latest.json").read_text())["step"] == saved + 1


def test_a_second_process_in_the_same_run_directory_is_refused(tmp_path: Path) -> None:
    process = start(tmp_path)
    try:
        wait_for_updates(tmp_path, 1)
        other = start(tmp_path)
        out, _ = other.communicate(timeout=60)
        assert other.returncode == 2 and str(process.pid) in out and "experiment=" in out
    finally:
        process.kill()
        process.communicate(timeout=60)


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_an_env_that_raises_ends_the_run_with_its_own_traceback(
    tmp_path: Path, executor: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isaac_appo.sim.mujoco import MujocoEngine

    step, calls = MujocoEngine.step, []

    def failing(self: Any) -> None:
        calls.append(1)
        if len(calls) == 50:
            raise ZeroDivisionError("the physics of step 50")
        step(self)

    monkeypatch.setattr(MujocoEngine, "step", failing)
    started = time.monotonic()
    with pytest.raises(ZeroDivisionError, match="the physics of step 50"):
        train(tmp_path, f"schedule.executor={executor}", "max_iterations=1000")
    assert time.monotonic() - started < 30
    record = json.loads((tmp_path / "Cartpole" / "default" / "s42" / "run.json").read_text())
    assert record["status"] == "failed" and record["exit_code"] == 1


def test_a_free_run_resumes_under_the_same_limits_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    free = ["schedule=free", "schedule.max_policy_lag=2", "schedule.num_workers=2"]
    assert train(tmp_path, "max_iterations=3", *free) == 0
    assert train(tmp_path, "max_iterations=5", *free, "schedule.broadcast_every=2") == 2
    assert "schedule.broadcast_every=2 (the checkpoint has 1)" in capsys.readouterr().err
    assert train(tmp_path, "max_iterations=5", *free) == 0
    assert checkpoint(tmp_path, 5)["isaac_appo"]["pipeline"]["ledger"]["collected"] == 6 * 256


def test_cartpole_trains_and_resumes_on_mujoco_warp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("mujoco_warp")
    warp = ["sim=mujoco_warp", "sim_device=cpu", "eval.enabled=False"]
    assert train(tmp_path, "experiment=straight", "max_iterations=4", *warp) == 0
    assert "Engine: sim=mujoco_warp on cpu" in capsys.readouterr().out
    assert train(tmp_path, "experiment=split", "max_iterations=2", *warp) == 0
    assert train(tmp_path, "experiment=split", "max_iterations=4", *warp) == 0
    straight = checkpoint(tmp_path, 4, "straight")
    assert straight["isaac_appo"]["pipeline"]["cuts"][0]["env"]["engine.state"].dtype == torch.float32  # mujoco: 64
    assert_equal(straight, checkpoint(tmp_path, 4, "split"))


def test_dropped_contacts_are_in_the_metrics_and_nothing_is_saved_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mujoco_warp")
    words = ["task=Ant", "num_envs=8", "sim=mujoco_warp", "sim_device=cpu", "eval.enabled=False", "max_iterations=2"]
    words += ["train.params.config.save_frequency=1", f"run_root={tmp_path}"]
    run = tmp_path / "Ant" / "default" / "s42"
    assert main(["train", *words, "sim.nconmax=1"]) == 2
    assert "8 of 8 rows dropped contacts: sim.nconmax=1" in capsys.readouterr().err
    with open(run / "metrics.csv") as file:
        [row] = csv.DictReader(file)
    assert (row["update"], float(row["physics/contact_overflow"])) == ("1", 8.0)
    assert not list((run / "checkpoints").glob("*.pth"))
    assert main(["train", *words]) == 0  # the same command, with room enough
