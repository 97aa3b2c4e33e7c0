"""The hot-loop law holds for every task, schedule and advantage, and each way to break it is caught."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Dict

import pytest
import torch

from isaac_appo.commands.main import main
from isaac_appo.schedule.hot_loop import HotLoopError, guarded
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.tasks.registry import TASKS
from tests.helpers import cartpole_pipeline

RUN = [
    "num_envs=8",
    "max_iterations=3",
    "train.params.config.horizon_length=4",
    "train.params.config.minibatch_size=16",
    "train.params.config.truncate_grads=True",
    "eval.enabled=False",
    "report.console=off",
]


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
@pytest.mark.parametrize("schedule", ["sync", "lockstep", "free"])
@pytest.mark.parametrize("task", sorted(TASKS))
def test_every_combination_keeps_the_law(
    task: str, schedule: str, advantage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, calls = Pipeline.handlers, []

    def watched(self: Pipeline) -> Dict[str, Callable[..., None]]:
        calls.append(task)
        return guarded(plain(self))

    monkeypatch.setattr(Pipeline, "handlers", watched)
    words = [f"task={task}", f"schedule={schedule}", f"advantage={advantage}", f"run_root={tmp_path}"]
    assert main(["train", *words, *RUN]) == 0
    assert calls  # the guard was there


def ways_to_break_it(x: torch.Tensor) -> Dict[str, Callable[[], Any]]:
    return {
        "item": lambda: x.sum().item(),
        "tolist": lambda: x.tolist(),
        "numpy": lambda: x.numpy(),
        "cpu": lambda: x.cpu(),
        "bool": lambda: bool(x.sum() > 0),
        "float": lambda: float(x.sum()),
        "int": lambda: int(x.sum()),
        "index": lambda: [1, 2, 3][x.long().sum()],
        "nonzero": lambda: x.nonzero(),
        "torch.nonzero": lambda: torch.nonzero(x),
        "argwhere": lambda: torch.argwhere(x),
        "mask indexing": lambda: x[x > 0],
        "mask assignment": lambda: x.__setitem__(x > 0, 0.0),
        "masked_select": lambda: torch.masked_select(x, x > 0),
        "unique": lambda: x.unique(),
        "equal": lambda: torch.equal(x, x),
        "where with one argument": lambda: torch.where(x > 0),
        "another device": lambda: x.to("meta"),
    }


@pytest.mark.parametrize("way", sorted(ways_to_break_it(torch.ones(3))))
@pytest.mark.parametrize("operation", ["act", "minibatch"])
def test_each_way_to_break_it_is_caught(way: str, operation: str) -> None:
    handler = guarded({operation: lambda: ways_to_break_it(torch.ones(1))[way]()})[operation]
    with pytest.raises(HotLoopError, match=f"inside operation {operation}"):
        handler()


def test_what_runs_once_per_update_may_read() -> None:
    seen = []
    guarded({"boundary": lambda: seen.append(torch.ones(3).tolist())})["boundary"]()
    assert seen == [[1.0, 1.0, 1.0]]


def test_a_violation_in_a_stream_ends_the_run() -> None:
    pipeline = cartpole_pipeline(executor="threads")
    minibatch = pipeline.learner.minibatch

    def reading(update: int, epoch: int, index: int) -> None:
        minibatch(update, epoch, index)
        float(pipeline.learner.learning_rate.value)

    pipeline.learner.minibatch = reading  # type: ignore[method-assign]
    handlers = guarded(pipeline.handlers())
    pipeline.handlers = lambda: handlers  # type: ignore[method-assign]
    with pytest.raises(HotLoopError, match="operation minibatch"):
        pipeline.run()
