from __future__ import annotations

from pathlib import Path
from typing import List, Tuple

import pytest

from isaac_appo.build import build_program
from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import main
from isaac_appo.report.csv import read_columns
from isaac_appo.topology.estimate import LagPrediction, predict, topology_of

SMALL = [
    "task=Cartpole",
    "num_envs=32",
    "train.params.config.horizon_length=8",
    "train.params.config.minibatch_size=64",
    "train.params.config.mini_epochs=2",
]
SGD_STEPS = 2 * 4


def prediction(*words: str) -> LagPrediction:
    return predict(compose([*SMALL, *words]).config)


def allows(p: LagPrediction, update: int, mean: float, highest: int) -> bool:
    """Whether a measured update, counted from 0, is as predicted."""
    reach = min(update, p.high)
    return 0 <= mean <= highest <= reach if p.mean is None else mean == highest == reach


@pytest.mark.parametrize(
    ("words", "low", "high", "mean", "collected"),
    [
        (["schedule=sync"], 0, 0, 0.0, 0),
        (["schedule=lockstep"], 1, 1, 1.0, 1),
        (["schedule=lockstep", "schedule.lag=3"], 3, 3, 3.0, 3),
        (["schedule=free"], 0, 1, None, 1),
        (["schedule=free", "schedule.max_policy_lag=0"], 0, 0, 0.0, 0),
        (["schedule=free", "schedule.max_policy_lag=5"], 0, 1, None, 1),  # a lead of 2 slabs reaches lag 1
        (["schedule=free", "schedule.max_policy_lag=5", "schedule.max_lead_steps=33"], 0, 4, None, 4),
        (["schedule=free", "schedule.max_lead_steps=32", "schedule.on_excess=mask"], 0, 1, None, 3),
        (["schedule=free", "schedule.broadcast_every=2", "schedule.on_excess=drop"], 0, 1, None, 3),
    ],
)
def test_predictions(words: List[str], low: int, high: int, mean: float, collected: int) -> None:
    p = prediction(*words)
    assert (p.low, p.high, p.mean, p.collected, p.sgd_steps) == (low, high, mean, collected, SGD_STEPS)


@pytest.mark.parametrize(
    "words", [["schedule=sync"], ["schedule.lag=4"], ["schedule=free", "schedule.max_policy_lag=1"]]
)
def test_no_prediction_goes_beyond_what_the_program_allows(words: List[str]) -> None:
    config = compose([*SMALL, *words]).config
    assert predict(config).high == build_program(config, 4).max_lag


def test_what_a_prediction_allows() -> None:
    fixed = LagPrediction(2, 2, 2.0, 1, 2, "")
    assert [allows(fixed, u, float(min(u, 2)), min(u, 2)) for u in range(5)] == [True] * 5
    assert not allows(fixed, 3, 1.5, 2) and not allows(fixed, 3, 1.0, 1) and not allows(fixed, 0, 1.0, 1)
    span = LagPrediction(0, 2, None, 1, 2, "")
    assert allows(span, 5, 0.3, 2) and allows(span, 5, 0.0, 0)
    assert not allows(span, 5, 1.0, 3) and not allows(span, 1, 0.5, 2) and not allows(span, 5, 2.0, 1)


@pytest.mark.parametrize(
    ("words", "updates"),
    [
        (["schedule=sync"], 4),
        (["schedule=lockstep"], 4),
        (["schedule=lockstep", "schedule.lag=2", "schedule.executor=inline"], 6),
        (["schedule=free", "schedule.max_policy_lag=0"], 5),
        (["schedule=free", "schedule.max_policy_lag=2", "schedule.max_lead_steps=40", "schedule.num_workers=2"], 12),
        (["schedule=free", "schedule.max_lead_steps=40", "schedule.on_excess=mask"], 12),
    ],
)
def test_a_run_measures_what_was_predicted(words: List[str], updates: int, tmp_path: Path) -> None:
    rest = ["eval.enabled=False", "report.console=off", "report.plot=False", "report.tensorboard=False"]
    typed = [*SMALL, *words, f"max_iterations={updates}"]
    assert main(["train", *typed, *rest, f"run_root={tmp_path}"]) == 0
    columns = read_columns(tmp_path / "Cartpole" / "default" / "s42" / "metrics.csv", ["lag/mean", "lag/max"])
    measured: List[Tuple[float, float]] = list(zip(columns["lag/mean"], columns["lag/max"]))
    assert len(measured) == updates
    p = predict(compose(typed).config)
    for update, (mean, highest) in enumerate(measured):
        assert allows(p, update, mean, int(highest)), (update, mean, highest, p)
    if p.mean is not None:
        assert measured[-1] == (p.mean, p.high)


def test_the_topology_of_a_run() -> None:
    t = topology_of(compose([*SMALL, "schedule=free", "schedule.num_workers=3"]).config)
    assert t == (3, 3, 1, 11, 8, 256, 32)
    assert t.produced_samples() == 256  # 11 + 11 + 10 environments, not three times 11
    assert t.lag_pressure() == 0.0
