"""Frames per second as a person with a stopwatch would measure it: env steps over wall clock, waiting included."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Callable

import numpy as np

WINDOWS_S = (10, 60, 300)


class FpsMeter:
    """Env steps per second over the last 10, 60 and 300 s; idle time counts against it.

    `start_steps` is the counter at construction (non-zero after a resume). A window longer than the life of the meter
    is cut to that life. Steps between two updates are taken as evenly spread.
    """

    def __init__(self, start_steps: int = 0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock, self._start_s = clock, clock()
        self._times, self._steps = [self._start_s], [start_steps]

    def update(self, env_steps: int) -> None:
        """Tell the counter's present value (total, not the increment)."""
        self._times.append(self._clock())
        self._steps.append(env_steps)
        # One sample from before the longest window stays, to interpolate from; cut in bulk, not at each call.
        old = bisect_right(self._times, self._times[-1] - max(WINDOWS_S)) - 1
        if old > 1000:
            del self._times[:old], self._steps[:old]

    def rates(self) -> dict[str, float]:
        """`fps/<window>s` for each window, in env steps per second; 0 while no time has passed."""
        return {f"fps/{window}s": self._rate(window) for window in WINDOWS_S}

    def _rate(self, window: float) -> float:
        now = self._clock()
        begin = max(now - window, self._start_s)
        after = bisect_right(self._times, begin)
        around = slice(after - 1, after + 1)  # the last sample alone where nothing has come since: idle
        then = float(np.interp(begin, self._times[around], self._steps[around]))
        return (self._steps[-1] - then) / (now - begin) if now > begin else 0.0
