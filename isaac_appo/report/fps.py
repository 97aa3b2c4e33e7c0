"""Frames per second as a person with a stopwatch would measure it: env steps over wall clock, waiting included."""

from __future__ import annotations

import bisect
import time
from typing import Callable, Sequence

__all__ = ["FpsMeter"]


class FpsMeter:
    """Env steps per second over the last 10, 60 and 300 s and since the start; idle time counts against it.

    `start_steps` is the counter at construction (non-zero after a resume). A window longer than the life of the meter
    is cut to that life. Steps between two updates are taken as evenly spread.
    """

    def __init__(
        self,
        start_steps: int = 0,
        windows: Sequence[float] = (10.0, 60.0, 300.0),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock, self._windows = clock, tuple(windows)
        self._start = (clock(), start_steps)
        self._times, self._steps = [self._start[0]], [start_steps]

    def update(self, env_steps: int) -> None:
        """Tell the counter's present value (total, not the increment)."""
        self._times.append(self._clock())
        self._steps.append(env_steps)
        # One sample from before the longest window stays, to interpolate from; cut in bulk, not at each call.
        old = bisect.bisect_right(self._times, self._times[-1] - max(self._windows)) - 1
        if old > 1000:
            del self._times[:old], self._steps[:old]

    def rates(self) -> dict[str, float]:
        """`fps/<window>s` for each window, in env steps per second; 0 while no time has passed."""
        return {f"fps/{window:.0f}s": self._rate(window) for window in self._windows}

    def overall(self) -> float:
        """Env steps per second since construction."""
        elapsed = self._clock() - self._start[0]
        return (self._steps[-1] - self._start[1]) / elapsed if elapsed > 0.0 else 0.0

    def _rate(self, window: float) -> float:
        now = self._clock()
        begin = max(now - window, self._start[0])
        return (self._steps[-1] - self._steps_at(begin)) / (now - begin) if now > begin else 0.0

    def _steps_at(self, moment: float) -> float:
        after = bisect.bisect_right(self._times, moment)
        if after == len(self._times):
            return self._steps[-1]  # nothing has come since: idle
        t0, t1 = self._times[after - 1], self._times[after]
        s0, s1 = self._steps[after - 1], self._steps[after]
        return s0 + (s1 - s0) * (moment - t0) / (t1 - t0)
