"""What every executor shares: events, handlers, idle time and the stop flag."""

from __future__ import annotations

import abc
import time
from typing import Callable, Dict, Iterator, Mapping

from isaac_appo.schedule.program import Op, Record, Step, Wait

Handler = Callable[..., None]


class ScheduleError(RuntimeError):
    """The streams wait for each other and nothing can run."""


class Executor(abc.ABC):
    """Interprets the streams of a program.

    Attributes:
        busy_s: seconds spent so far in handlers, by stream; the rest of the wall clock a stream was idle.
        op_s: seconds spent so far in handlers, by operation.
        beat: called with the name of a stream that is alive, before each operation and while it waits.
    """

    def __init__(self, handlers: Mapping[str, Handler]) -> None:
        self.handlers = dict(handlers)
        self.recorded: Dict[str, int] = {}
        self.busy_s: Dict[str, float] = {}
        self.op_s: Dict[str, float] = dict.fromkeys(handlers, 0.0)
        self.beat: Callable[[str], None] = lambda stream: None

    def mark(self, **recorded: int) -> None:
        """State what had been recorded before this process began (a resumed run)."""
        self.recorded.update(recorded)

    def is_set(self, wait: Wait) -> bool:
        """Whether the event that ``wait`` names has come."""
        return self.recorded.get(wait.event, wait.at - 1) >= wait.at

    def record(self, record: Record) -> None:
        """Record an event. Its index may only grow: a step back would release nobody and hide a defect."""
        previous = self.recorded.get(record.event)
        if previous is not None and record.at <= previous:
            raise ScheduleError(f"event {record.event} was recorded as {record.at} after {previous}")
        self.recorded[record.event] = record.at

    def call(self, stream: str, op: Op) -> None:
        """Run the handler of ``op`` on the clock of ``stream``."""
        self.beat(stream)
        started = time.perf_counter()
        self.handlers[op.name](*op.args)
        elapsed = time.perf_counter() - started
        self.busy_s[stream] += elapsed
        self.op_s[op.name] += elapsed

    @abc.abstractmethod
    def run(self, streams: Mapping[str, Iterator[Step]]) -> None:
        """Run all streams to their ends, or until :meth:`stop`."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End every stream at its next step. Called from a handler."""
