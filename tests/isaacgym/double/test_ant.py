"""Ant on the double: the same observations as on engine `mujoco`, and it learns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from isaac_appo.commands.main import main
from isaac_appo.env.task_env import TaskEnv, make_env

from .conftest import forget

STATE = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel")


def sync(source: TaskEnv, target: TaskEnv) -> None:
    """Put the simulation of `target` in the state of `source`."""
    for key in STATE:
        getattr(target.engine, key).copy_(getattr(source.engine, key))
    target.engine.reset(torch.ones(target.num_envs, dtype=torch.bool))
    target.task.last_xy.copy_(source.task.last_xy)


def test_100_resynchronised_steps_give_the_same_observations_as_engine_mujoco() -> None:
    ours, double = (make_env("Ant", {}, num_envs=32, seed=5, engine=name) for name in ("mujoco", "isaacgym"))
    torch.testing.assert_close(double.reset(), ours.reset(), atol=1e-6, rtol=1e-6)
    generator, ended, contacts = torch.Generator().manual_seed(0), 0, 0
    for _ in range(100):
        actions = 2.0 * torch.rand(32, 8, generator=generator) - 1.0
        sync(ours, double)
        obs, reward, terminated, _ = ours.step(actions)
        other, other_reward, other_terminated, _ = double.step(actions)
        assert torch.equal(terminated, other_terminated)
        torch.testing.assert_close(other[:, :28], obs[:, :28], atol=2e-3, rtol=2e-3)
        torch.testing.assert_close(other[:, 28:52], obs[:, 28:52], atol=2e-2, rtol=2e-3)  # wrenches
        torch.testing.assert_close(other[:, 52:], obs[:, 52:])
        torch.testing.assert_close(other_reward, reward, atol=2e-3, rtol=2e-3)
        ended += int(terminated.sum())
        contacts += int((obs[:, 28:52].abs() > 1.0).any(dim=1).sum())
    assert ended > 0 and contacts > 0


def train(root: Path, *more: str) -> int:
    """`isaac-appo train` in a process that has made no simulation yet."""
    forget()
    words = ["task=Ant", "sim=isaacgym", "num_envs=64", "task.env.episodeLength=100", f"run_root={root}"]
    return main(["train", *words, "train.params.config.minibatch_size=512", "report.console=plain", *more])


def test_ant_learns_on_the_double(tmp_path: Path) -> None:
    steady = [
        "schedule.policy_threads=1",
        "schedule.learner_threads=1",
        "train.params.config.lr_schedule=constant",
        "train.params.config.learning_rate=1e-3",
    ]
    assert train(tmp_path, "max_iterations=60", "schedule=sync", "eval.enabled=False", *steady) == 0
    checkpoint = tmp_path / "Ant" / "default" / "s42" / "checkpoints" / "ckpt_000000060.pth"
    mean = torch.load(checkpoint, weights_only=True)["last_mean_rewards"]
    assert mean >= 55  # of episodes of 99 steps; with a learning rate of 1e-9 it is below 15


def test_train_resume_and_test_in_lockstep(tmp_path: Path, capsys: Any) -> None:
    small = ["num_envs=8", "schedule=lockstep", "train.params.config.minibatch_size=64"]
    assert train(tmp_path, "max_iterations=2", *small) == 0
    out = capsys.readouterr().out
    assert "Engine: sim=isaacgym on cpu (as asked, PhysX on cpu)" in out
    assert "one episode in each of 8 environments" in out and "8 episodes" in out  # the training environments
    assert train(tmp_path, "max_iterations=4", *small) == 0
    assert "Resumed from" in capsys.readouterr().out
    run = tmp_path / "Ant" / "default" / "s42"
    assert json.loads((run / "run.json").read_text())["status"] == "complete"
    assert train(tmp_path, "test=True", f"checkpoint={run}", "eval.num_envs=5", *small) == 0
    assert "update 4" in capsys.readouterr().out


def test_two_runs_in_one_process_are_refused_with_the_reason(tmp_path: Path, capsys: Any) -> None:
    words = ["train", "task=Cartpole", "sim=isaacgym", "num_envs=4", "max_iterations=1", f"run_root={tmp_path}"]
    assert main([*words, "experiment=a"]) == 0
    assert main([*words, "experiment=b"]) == 2
    assert "one simulation per process" in capsys.readouterr().err


def test_a_run_can_be_described_without_a_simulation(capsys: Any) -> None:
    assert main(["blueprint", "task=Ant", "sim=isaacgym", "num_envs=8"]) == 0
    assert "isaacgym" in capsys.readouterr().out
