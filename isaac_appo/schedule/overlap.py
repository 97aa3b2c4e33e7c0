"""Whether running two streams at once pays: each alone against both together, measured once, early in a run."""

from __future__ import annotations

import time
from typing import NamedTuple, Optional, Tuple

from isaac_appo.schedule.executors.base import Executor
from isaac_appo.schedule.program import Program

WORTH_ITS_LAG = 0.1
"""Below this hidden fraction the lag costs more samples than the overlap saves time."""
WARM_UPDATES = 8
"""Updates after the slabs have gone round once: graphs are captured, the streams are timed alone, queues are full."""
WINDOW = 10
"""Updates over which both are timed together."""


class Overlap(NamedTuple):
    """Seconds per update."""

    collect_s: float
    """Of a policy stream alone."""
    learn_s: float
    together_s: float
    """Wall clock of both."""

    @property
    def hidden(self) -> float:
        """The fraction of the shorter stream that ran behind the longer one."""
        return (self.collect_s + self.learn_s - self.together_s) / max(min(self.collect_s, self.learn_s), 1e-9)

    @property
    def pays(self) -> bool:
        """Whether that is worth the lag."""
        return self.hidden >= WORTH_ITS_LAG

    def __str__(self) -> str:
        times = (f"{1000 * s:.1f} ms" for s in self)
        return "{} to collect and {} to learn alone, {} together".format(*times) + f": {100 * self.hidden:.0f} % hidden"


class OverlapMeter:
    """Watches a run from its boundaries.

    On a GPU the executor times each stream alone by its events. On a CPU a stream's own processor time stands for that,
    which waiting for a core does not lengthen.
    """

    def __init__(self, program: Program) -> None:
        self._first = max(program.first_update, 0) + program.num_slabs + WARM_UPDATES
        self._start: Optional[Tuple[float, Tuple[float, float]]] = None

    def boundary(self, update: int, executor: Executor) -> Optional[Overlap]:
        """Take note of the end of ``update``; the result, once, when the window is over."""
        if update == self._first:
            self._start = time.perf_counter(), executor.cpu_seconds()
        if update != self._first + WINDOW or self._start is None:
            return None
        together = (time.perf_counter() - self._start[0]) / WINDOW
        alone = executor.solo_seconds()
        if alone is None and not executor.host_clock:
            return None
        if alone is None:
            before, after = self._start[1], executor.cpu_seconds()
            alone = (after[0] - before[0]) / WINDOW, (after[1] - before[1]) / WINDOW
        return Overlap(*alone, together)
