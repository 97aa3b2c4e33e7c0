"""Who else used the machine while something was measured, and whether the measurement may count."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import List, NamedTuple, Optional

STAT = Path("/proc/stat")
_BUSY = (0, 1, 2, 5, 6, 7)  # user, nice, system, irq, softirq, steal; guests are part of user already


class Limits(NamedTuple):
    """What a measurement may look like.

    Attributes:
        wall_per_cpu: most wall seconds per CPU second of this process, where it works on one core without waiting.
        other_cores: most cores that anything else kept busy, on average.
    """

    wall_per_cpu: float = 1.03
    other_cores: float = 0.15


class Load(NamedTuple):
    """Seconds of wall clock, CPU seconds of this process, cores busy with anything else (``None``: not known)."""

    wall_s: float
    cpu_s: float
    other_cores: Optional[float]


def busy_seconds() -> Optional[float]:
    """CPU seconds that all cores together have been busy since boot; ``None`` where there is no ``/proc/stat``."""
    try:
        words = STAT.read_text().split("\n", 1)[0].split()
    except OSError:
        return None
    ticks = [int(word) for word in words[1:]]
    return sum(ticks[i] for i in _BUSY if i < len(ticks)) / os.sysconf("SC_CLK_TCK")


def other_cores(wall_s: float, cpu_s: float, busy_s: Optional[float]) -> Optional[float]:
    """Cores busy with anything but this process, on average over ``wall_s``; below the clock's resolution it is 0."""
    if busy_s is None or wall_s <= 0:
        return None
    return max(0.0, busy_s - cpu_s) / wall_s


class LoadMeter:
    """Measures from its construction to :meth:`stop`."""

    def __init__(self) -> None:
        self._busy = busy_seconds()
        self._cpu = time.process_time()
        self._wall = time.perf_counter()

    def stop(self) -> Load:
        """The load so far."""
        wall, cpu, busy = time.perf_counter() - self._wall, time.process_time() - self._cpu, busy_seconds()
        spent = None if busy is None or self._busy is None else busy - self._busy
        return Load(wall, cpu, other_cores(wall, cpu, spent))


def reject(load: Load, one_core: bool, limits: Limits) -> str:
    """Why a measurement may not count, or nothing. ``one_core``: the process should have kept one core busy."""
    if load.other_cores is not None and load.other_cores > limits.other_cores:
        return f"other load: {load.other_cores:.2f} cores where {limits.other_cores:.2f} may be busy"
    ratio = load.wall_s / max(load.cpu_s, 1e-9)
    if one_core and ratio > limits.wall_per_cpu:
        return f"wall/CPU time {ratio:.3f} where {limits.wall_per_cpu:.2f} is the limit: it did not have its core"
    return ""


def other_load_now() -> Optional[float]:
    """Cores that are busy while this process sleeps a second."""
    meter = LoadMeter()
    time.sleep(1.0)
    return meter.stop().other_cores


def other_load_warnings(cores: Optional[float], limits: Limits) -> List[str]:
    """What to say before measuring."""
    if cores is None:
        return ["this system has no /proc/stat, so other load is not noticed: close everything else"]
    if cores > limits.other_cores:
        return [f"something else keeps {cores:.2f} cores busy; blocks that it disturbs are rejected. Stop it first"]
    return []
