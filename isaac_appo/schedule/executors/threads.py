"""One thread per stream. On CPU this is where the overlap comes from: kernels and matrix products drop the GIL."""

from __future__ import annotations

import threading
import time
from typing import Callable, Iterator, List, Mapping, Optional, Tuple, Union

from isaac_appo.schedule.executors.base import Condition, Executor, Handler, ScheduleError
from isaac_appo.schedule.program import Gate, Op, Record, Step, Wait

POLL_S = 0.5
"""Longest time that a waiting stream goes without looking at the stop flag."""
JOIN_S = 30.0
"""How long the other stream may take to end its step after one has failed."""


class ThreadExecutor(Executor):
    """Runs each stream in a thread of its own and re-raises the first exception of any, original traceback included.

    Args:
        handlers, gates: see :class:`Executor`; gates are asked under the lock that records take.
        setup: called in each thread, with the stream's name, before its first step (thread budgets).
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        gates: Optional[Mapping[str, Condition]] = None,
        setup: Callable[[str], None] = lambda stream: None,
    ) -> None:
        super().__init__(handlers, gates)
        self._setup = setup
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._failure: Optional[Tuple[str, BaseException]] = None

    def run(self, streams: Mapping[str, Iterator[Step]]) -> None:
        """See :meth:`Executor.run`."""
        self.busy_s = dict.fromkeys(streams, 0.0)
        threads = [
            threading.Thread(target=self._work, args=(name, steps), name=f"stream-{name}", daemon=True)
            for name, steps in streams.items()
        ]
        for thread in threads:
            thread.start()
        try:
            alive = threads
            while alive and not self._stopping.is_set():
                alive[0].join(POLL_S)
                alive = [thread for thread in threads if thread.is_alive()]
        finally:
            self.stop()
            self._join(threads)
        if self._failure is not None:
            raise self._failure[1]

    def stop(self) -> None:
        """See :meth:`Executor.stop`."""
        with self._changed:
            self._stopping.set()
            self._changed.notify_all()

    def _join(self, threads: List[threading.Thread]) -> None:
        deadline = time.monotonic() + JOIN_S
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        stuck = [thread.name for thread in threads if thread.is_alive()]
        if stuck and self._failure is None:
            raise ScheduleError(f"{', '.join(stuck)} did not end within {JOIN_S:.0f} s of being asked to stop")

    def _work(self, name: str, steps: Iterator[Step]) -> None:
        try:
            self._setup(name)
            for step in steps:
                if self._stopping.is_set():
                    return
                self._take(name, step)
        except BaseException as error:
            if self._failure is None:
                self._failure = (name, error)
            self.stop()

    def _take(self, name: str, step: Step) -> None:
        if isinstance(step, Op):
            self.call(name, step)
        elif isinstance(step, Record):
            with self._changed:
                self.record(step)
                self._changed.notify_all()
        else:
            self._block(name, step)

    def _block(self, name: str, step: Union[Wait, Gate]) -> None:
        started = time.perf_counter()
        with self._changed:
            if self.is_open(step):
                return
            while not self.is_open(step) and not self._stopping.is_set():
                self.beat(name)
                self._changed.wait(POLL_S)
        key = f"{name} {step.event if isinstance(step, Wait) else step.name}"
        self.wait_s[key] = self.wait_s.get(key, 0.0) + time.perf_counter() - started

    @property
    def failed_stream(self) -> Optional[str]:
        """Name of the stream that raised, if one did."""
        return None if self._failure is None else self._failure[0]
