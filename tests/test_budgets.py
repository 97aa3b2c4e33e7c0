"""Thread budgets: what was asked wins, then the checkpoint, then the rule, then a measurement."""

from __future__ import annotations

from typing import List, Tuple

import pytest

from isaac_appo.budgets import measure_update, resolve_budgets, split
from isaac_appo.commands.compose import compose
from isaac_appo.config import RunConfig


@pytest.mark.parametrize(
    ("cores", "workers", "policy_s", "learner_s", "expected"),
    [
        (4, 1, 1.0, 1.0, (2, 2)),
        (4, 1, 1.0, 3.0, (1, 3)),
        (4, 1, 3.0, 1.0, (3, 1)),
        (16, 1, 3.0, 1.0, (12, 4)),
        (16, 3, 3.0, 1.0, (4, 4)),
        (8, 1, 1.0, 0.0, (7, 1)),
        (3, 2, 1.0, 9.0, (1, 1)),
        (2, 4, 1.0, 1.0, (1, 1)),
    ],
)
def test_the_split_balances_the_streams(
    cores: int, workers: int, policy_s: float, learner_s: float, expected: Tuple[int, int]
) -> None:
    assert split(cores, workers, policy_s, learner_s) == expected


@pytest.mark.parametrize(
    ("words", "stored", "cores", "expected", "measured"),
    [
        ("schedule.policy_threads=3 schedule.learner_threads=5", {"policy": 1, "learner": 1}, 2, (3, 5), 0),
        ("", {"policy": 3, "learner": 2}, 16, (3, 2), 0),
        ("schedule.policy_threads=6", None, 16, (6, 10), 0),
        ("schedule.learner_threads=6", None, 16, (10, 6), 0),
        ("schedule=sync", None, 16, (16, 16), 0),
        ("schedule.lag=0", None, 2, (2, 2), 0),
        ("", None, 2, (1, 1), 0),
        ("", None, 1, (1, 1), 0),
        ("", None, 16, (12, 4), 1),
        ("schedule=free schedule.max_policy_lag=0", None, 16, (12, 4), 1),
        ("schedule.num_workers=2", None, 3, (1, 1), 0),
    ],
)
def test_who_decides(words: str, stored: object, cores: int, expected: Tuple[int, int], measured: int) -> None:
    calls: List[RunConfig] = []

    def measure(config: RunConfig) -> Tuple[float, float]:
        calls.append(config)
        return 3.0, 1.0

    config = compose(["task=Cartpole", *words.split()]).config
    resolved, budgets = resolve_budgets(config, stored, measure, cores)  # type: ignore[arg-type]
    assert (budgets.policy, budgets.learner) == expected and len(calls) == measured
    assert (resolved.schedule.policy_threads, resolved.schedule.learner_threads) == expected
    assert all((c.schedule.policy_threads, c.schedule.learner_threads) == (1, 1) for c in calls)


def test_the_measurement_times_both_streams() -> None:
    words = ["task=Cartpole", "num_envs=16", "train.params.config.minibatch_size=64", "schedule.policy_threads=1"]
    config = compose([*words, "schedule.learner_threads=1"]).config
    policy_s, learner_s = measure_update(config)
    assert policy_s > 0 and learner_s > 0
