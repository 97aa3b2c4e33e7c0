from __future__ import annotations

from pathlib import Path
from typing import Dict, List

import pytest

from isaac_appo.commands.main import main
from isaac_appo.report.guard_rails import Facts, GuardRails
from isaac_appo.report.metrics import undocumented

FACTS = Facts(max_episode_length=500, horizon=16, clip_actions=True, overlaps=True, fresh=True)
SMALL = [
    "task=Cartpole",
    "num_envs=32",
    "schedule=sync",
    "schedule.policy_threads=1",
    "schedule.learner_threads=1",
    "train.params.config.horizon_length=8",
    "train.params.config.minibatch_size=256",
    "train.params.config.mini_epochs=2",
    "eval.enabled=False",
    "report.console=plain",
    "report.plot=False",
]


def row(update: int, **changes: float) -> Dict[str, float]:
    """A row of a healthy run."""
    healthy: Dict[str, float] = {
        "info/epochs": update,
        "idle/policy": 0.1,
        "idle/learner": 0.2,
        "episodes/finished": 2,
        "episodes/truncated": 1,
        "episodes/longest": 499,
        "episodes/shortest": 20,
        "rewards/step": 10.0 + update,
        "policy/action_clip_fraction": 0.3,
        "nan_envs": 0,
        "loss/skipped_steps": 0,
    }
    return {**healthy, **{key.replace("__", "/"): value for key, value in changes.items()}}


def said(updates: int, facts: Facts = FACTS, **changes: float) -> List[str]:
    """What is said in so many updates that all have the changed values."""
    rails = GuardRails(facts)
    return [f"{update}: {text}" for update in range(1, updates + 1) for text in rails.look(row(update, **changes))]


def test_a_healthy_row_is_passed_over_and_has_only_documented_keys() -> None:
    assert said(300) == [] and undocumented(row(1)) == []


def test_an_idle_stream_is_named_once_with_its_knob() -> None:
    (text,) = said(300, idle__policy=0.6)
    assert text.startswith("100: The policy stream idled 60 %, waiting for the learner: fewer mini_epochs")
    (text,) = said(300, idle__learner=0.7)
    assert text.startswith("100: The learner stream idled 70 %") and "schedule.policy_threads" in text
    assert said(300, idle__policy=0.49) == [] and said(300, FACTS._replace(overlaps=False), idle__policy=0.9) == []


def test_a_return_that_never_moves() -> None:
    (text,) = said(300, rewards__step=2.5)
    assert text.startswith("50: The mean return has been 2.5 since the start, over 50 updates in which 100 episodes")
    assert said(300, FACTS._replace(fresh=False), rewards__step=2.5) == []
    assert said(300, rewards__step=2.5, episodes__finished=0) == []
    rails = GuardRails(FACTS)  # moved once, and solved from then on
    assert [rails.look(row(update, rewards__step=min(update, 2))) for update in range(1, 200)] == [[]] * 199


def test_a_return_is_compared_where_episodes_ended_only() -> None:
    rails, texts = GuardRails(FACTS), []
    for update in range(1, 101):
        ended = update % 2
        texts += rails.look(row(update, rewards__step=1.0, episodes__finished=ended))
    assert len(texts) == 1 and "over 50 updates in which 50 episodes" in texts[0]


def test_time_outs_that_are_reported_as_failures() -> None:
    same = {"episodes__truncated": 0, "episodes__longest": 80, "episodes__shortest": 80}
    (text,) = said(300, **same)
    assert text.startswith("10: All of 20 finished episodes lasted 80 steps") and "report truncated" in text
    limit = {"episodes__truncated": 0, "episodes__longest": 499, "episodes__shortest": 20}
    (text,) = said(300, **limit)
    assert text.startswith("10: The longest of 20 finished episodes lasted 499 steps")
    assert said(300, **{**limit, "episodes__longest": 498}) == []  # below the limit, ages differ: failures
    assert said(300, **{**same, "episodes__truncated": 1}) == [] and said(9, **same) == []


def test_failures_that_are_reported_as_time_outs() -> None:
    wrong = {"episodes__truncated": 2, "episodes__longest": 300, "episodes__shortest": 20}
    (text,) = said(300, **wrong)  # 63 updates of 16 steps: more than twice the limit, when staggered resets are over
    assert text.startswith("63: All of 126 finished episodes were reported as truncated, and none lasted longer")
    assert "300 of 500 steps" in text
    assert said(300, **{**wrong, "episodes__truncated": 1}) == []
    assert said(300, **{**wrong, "episodes__longest": 499}) == []


def test_actions_that_are_all_clipped() -> None:
    (text,) = said(300, policy__action_clip_fraction=0.97)
    assert text.startswith("5: 97 % of the action components are clipped") and "bounds_loss_coef" in text
    assert said(300, policy__action_clip_fraction=0.95) == []
    assert said(300, FACTS._replace(clip_actions=False), policy__action_clip_fraction=0.97) == []
    rails = GuardRails(FACTS)
    shares = [0.97, 0.97, 0.97, 0.97, 0.5] * 3
    assert [rails.look(row(n, policy__action_clip_fraction=share)) for n, share in enumerate(shares, 1)] == [[]] * 15


def test_broken_physics_and_skipped_steps_are_named_where_they_first_occur() -> None:
    rails, texts = GuardRails(FACTS), []
    for update in range(1, 30):
        texts += rails.look(row(update, nan_envs=3 * (update >= 7), loss__skipped_steps=2 * (update >= 9)))
    first, second = texts
    assert first.startswith("The physics of 3 rows became non-finite in update 7.") and "task.sim.substeps" in first
    assert second.startswith("2 SGD steps of update 9 were skipped") and "truncate_grads=True" in second


def test_a_healthy_run_prints_none_and_counts_how_its_episodes_ended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", *SMALL, "max_iterations=60", f"run_root={tmp_path}"]) == 0
    assert "WARNING" not in capsys.readouterr().out
    from isaac_appo.report.csv import read_columns

    names = [f"episodes/{name}" for name in ("finished", "truncated", "longest", "shortest")]
    columns = read_columns(tmp_path / "Cartpole" / "default" / "s42" / "metrics.csv", names)
    finished, truncated = sum(columns[names[0]]), sum(columns[names[1]])
    assert 0 < truncated < finished  # staggered resets cut some; poles fall
    ended = [n > 0 for n in columns[names[0]]]
    assert all((length == length) is is_ended for length, is_ended in zip(columns[names[2]], ended))
    assert all(a >= b for a, b, is_ended in zip(columns[names[2]], columns[names[3]], ended) if is_ended)


def test_a_run_whose_actions_are_all_clipped_is_told_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    noisy = "train.params.network.space.continuous.sigma_init.val=5"
    assert main(["train", *SMALL, noisy, "max_iterations=12", f"run_root={tmp_path}"]) == 0
    out = capsys.readouterr().out
    assert out.count("of the action components are clipped to [-1, 1]") == 1
