"""Warm-up, end and stages of a block, on clocks that the test moves."""

from __future__ import annotations

from typing import List

import pytest

from isaac_appo.bench.load import LoadMeter
from isaac_appo.bench.window import STAGES, Effort, StageClock, Window


def test_warmup_is_not_counted_and_the_block_ends_after_its_updates() -> None:
    window = Window(Effort(warmup=2, updates=3))
    assert [window.tick() for _ in range(6)] == [False, False, False, False, True, True]
    assert window.block.updates == 3 and window.block.stages is None


def test_a_block_is_as_long_as_asked_in_seconds_too() -> None:
    window = Window(Effort(1, 1, seconds=0.02))
    ticks = 0
    while not window.tick():
        ticks += 1
    assert ticks > 2 and window.block.load.wall_s >= 0.02
    assert window.block.update_s == pytest.approx(window.block.load.wall_s / window.block.updates)


def test_the_clock_starts_when_the_warmup_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    window = Window(Effort(warmup=2, updates=3))
    started: List[int] = []

    class Watched(LoadMeter):
        def __init__(self) -> None:
            started.append(window.ticks)
            super().__init__()

    monkeypatch.setattr("isaac_appo.bench.window.LoadMeter", Watched)
    while not window.tick():
        pass
    assert started == [2] and window.ticks == 5
    assert window.block.update_s == window.block.load.wall_s / 3


def test_an_unfinished_block_is_an_error_and_so_is_no_warmup() -> None:
    window = Window(Effort(1, 5))
    window.tick()
    with pytest.raises(RuntimeError, match="ended after 1 updates"):
        _ = window.block
    with pytest.raises(ValueError, match="one update to warm up"):
        Window(Effort(0, 5))


def test_stages_add_up_and_the_rest_is_other() -> None:
    times = iter([0.0, 2.0, 2.0, 5.0, 5.0, 6.0])
    stages = StageClock(lambda: next(times))
    seen: List[int] = []
    act = stages.timed("act", seen.append)
    act(1)
    stages.timed("minibatch", seen.append)(2)
    act(3)
    assert seen == [1, 2, 3] and stages.seconds["act"] == 3.0 and stages.seconds["minibatch"] == 3.0
    per_update = stages.per_update(updates=2, cpu_s=10.0)
    assert per_update == {**dict.fromkeys(STAGES, 0.0), "act": 1.5, "minibatch": 1.5, "other": 2.0}
    stages.reset()
    assert set(stages.seconds.values()) == {0.0}
