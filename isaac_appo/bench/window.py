"""One block of a scenario: warm up, then measure so many updates."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, NamedTuple, Optional

from isaac_appo.bench.load import Load, LoadMeter

STAGES = ("env.step", "act", "proximal", "targets", "minibatch", "other")
"""Where core time goes. ``other`` is all that is not in one of the former: hand-over, reports, Python."""
STAGE_OF = {
    "step": "env.step",
    "act": "act",
    "bootstrap": "act",
    "proximal": "proximal",
    "load": "targets",
    "targets": "targets",
    "minibatch": "minibatch",
}
"""Stage of each operation of a program; the rest is ``other``."""


class Effort(NamedTuple):
    """How long a block takes: ``warmup`` updates uncounted (1 or more), then at least ``updates`` and ``seconds``."""

    warmup: int
    updates: int
    seconds: float = 0.0


class Block(NamedTuple):
    """What was measured.

    Attributes:
        update_s: wall seconds per update.
        updates: how many.
        load: of the measured part.
        stages: core-seconds per update by stage; ``None`` where they cannot be told apart.
        rejected: why it does not count; empty if it does.
    """

    update_s: float
    updates: int
    load: Load
    stages: Optional[Dict[str, float]]
    rejected: str = ""


class StageClock:
    """Adds up CPU seconds by stage.

    Args:
        clock: ``time.process_time`` where one stage runs at a time, ``time.thread_time`` where each thread has one.
    """

    def __init__(self, clock: Callable[[], float] = time.process_time) -> None:
        self._clock = clock
        self.seconds = dict.fromkeys(STAGES, 0.0)

    def timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """``function``, with its CPU time put down to ``stage``."""
        seconds, clock = self.seconds, self._clock

        def call(*args: Any) -> Any:
            started = clock()
            result = function(*args)
            seconds[stage] += clock() - started
            return result

        return call

    def operation(self, name: str, handler: Callable[..., Any]) -> Callable[..., Any]:
        """An operation of a program, with its CPU time put down to its stage."""
        return self.timed(STAGE_OF[name], handler) if name in STAGE_OF else handler

    def reset(self) -> None:
        """Back to zero."""
        self.seconds.update(dict.fromkeys(STAGES, 0.0))

    def per_update(self, updates: int, cpu_s: float) -> Dict[str, float]:
        """Core-seconds per update; what the stages do not explain of ``cpu_s`` is ``other``."""
        spent = {stage: self.seconds[stage] / updates for stage in STAGES if stage != "other"}
        return {**spent, "other": max(0.0, cpu_s / updates - sum(spent.values()))}


class Window:
    """The part of a run that is measured: :meth:`tick` is called at the end of every update."""

    def __init__(self, effort: Effort, stages: Optional[StageClock] = None) -> None:
        if effort.warmup < 1 or effort.updates < 1:
            raise ValueError(f"{effort}: a block needs one update to warm up and one to measure, at least")
        self.effort, self.stages = effort, stages
        self.ticks = 0
        self._meter = LoadMeter()
        self._block: Optional[Block] = None

    def tick(self) -> bool:
        """An update is over; true if the block is, too."""
        self.ticks += 1
        updates = self.ticks - self.effort.warmup
        if updates == 0:
            if self.stages is not None:
                self.stages.reset()
            self._meter = LoadMeter()
        elif self._block is None and updates >= self.effort.updates:
            load = self._meter.stop()
            if load.wall_s >= self.effort.seconds:
                stages = self.stages.per_update(updates, load.cpu_s) if self.stages is not None else None
                self._block = Block(load.wall_s / updates, updates, load, stages)
        return self._block is not None

    @property
    def block(self) -> Block:
        """What was measured; an error before the end."""
        if self._block is None:
            raise RuntimeError(f"the run ended after {self.ticks} updates, within {self.effort}")
        return self._block
