from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Dict, List

import pytest

from isaac_appo.commands.compose import hydra_loader
from isaac_appo.sweep.plan import SEARCH, Job, find_axes
from isaac_appo.sweep.search import Search

pytest.importorskip("optuna")  # an extra


def search(folder: Path, trials: int, *words: str) -> Search:
    with hydra_loader() as loader:
        axes, _ = find_axes(words, loader, [])
    return Search(axes, {**SEARCH, "n_trials": trials, "seed": 3}, "mine", folder)


def make(trial: int, values: Dict[str, str]) -> Job:
    return Job(trial + 1, [f"{key}={value}" for key, value in values.items()], values, Path())


def test_the_grammar_becomes_the_space_that_is_searched(tmp_path: Path) -> None:
    words = ["a=tag(log,interval(1e-4,1e-2))", "b=interval(0,1)", "c=int(interval(2,5))", "d=x,y", "e=range(1,4)"]
    found: Any = search(tmp_path, 1, *words)
    space, kinds = found._space, found._optuna.distributions
    assert space == {
        "a": kinds.FloatDistribution(1e-4, 1e-2, log=True),
        "b": kinds.FloatDistribution(0.0, 1.0),
        "c": kinds.IntDistribution(2, 5),
        "d": kinds.CategoricalDistribution(("x", "y")),
        "e": kinds.CategoricalDistribution(("1", "2", "3")),
    }


def test_a_study_ends_after_its_trials_and_goes_on_where_it_was(tmp_path: Path) -> None:
    told: List[str] = []
    first = search(tmp_path, 3, "a=interval(0,1)", "d=x,y")
    for job in first.jobs(make):
        first.tell(job, math.nan if job.number == 2 else float(job.swept["a"]))
        told.append(job.swept["a"])
    assert [t.state.name for t in first.study.trials] == ["COMPLETE", "FAIL", "COMPLETE"]
    assert len(told) == 3 and first.study.best_value == max(float(told[0]), float(told[2]))
    again = search(tmp_path, 5, "a=interval(0,1)", "d=x,y")
    numbers = []
    for job in again.jobs(make):
        again.tell(job, 0.0)
        numbers.append(job.number)
    assert numbers == [4, 5]


def test_the_result_of_one_run_is_known_before_the_next_is_asked_for(tmp_path: Path) -> None:
    found = search(tmp_path, 2, "a=interval(0,1)")
    drawn = found.jobs(make)
    found.tell(next(drawn), 1.0)
    assert len(found.study.trials) == 1
    next(drawn)
    assert [t.value for t in found.study.trials] == [1.0, None]
    with pytest.raises(StopIteration):
        next(drawn)
