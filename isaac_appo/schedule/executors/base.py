"""What every executor shares: events, handlers, gates, the clock of each stream and the stop flag."""

from __future__ import annotations

import abc
import time
from typing import Callable, Dict, Iterator, Mapping, Optional, Tuple, Union

from isaac_appo.schedule.program import LEARNER, Gate, Op, Record, Step, Wait

Handler = Callable[..., None]
Condition = Callable[..., bool]
Tracer = Callable[[str, str, Tuple[int, ...], float, float], None]


class ScheduleError(RuntimeError):
    """The streams wait for each other and nothing can run, or an event went backwards."""


class Executor(abc.ABC):
    """Interprets the streams of a program.

    Args:
        handlers: operations by name.
        gates: conditions by name; they must be cheap and must not block.

    Attributes:
        recorded: the newest index of each event.
        busy_s: seconds spent so far in handlers, by stream; the rest of the wall clock a stream was idle.
        op_s: seconds spent so far in handlers, by operation.
        cpu_s: processor seconds of the stream's thread so far in handlers, by stream: what waiting for a core leaves
            out.
        wait_s: seconds spent so far waiting, by ``"stream event"``.
        trace: called after each operation with stream, name, arguments, begin and end, or ``None``.
        beat: called with the name of a stream that is alive, before each operation and while it waits.
    """

    host_clock = True
    """Whether ``busy_s`` and ``op_s`` are the time of the work itself, not of enqueuing it."""

    def __init__(self, handlers: Mapping[str, Handler], gates: Optional[Mapping[str, Condition]] = None) -> None:
        self.handlers = dict(handlers)
        self.gates = dict(gates or {})
        self.recorded: Dict[str, int] = {}
        self.busy_s: Dict[str, float] = {}
        self.op_s: Dict[str, float] = dict.fromkeys(handlers, 0.0)
        self.cpu_s: Dict[str, float] = {}
        self.wait_s: Dict[str, float] = {}
        self.trace: Optional[Tracer] = None
        self.beat: Callable[[str], None] = lambda stream: None

    def mark(self, **recorded: int) -> None:
        """State what had been recorded before this process began (a resumed run)."""
        self.recorded.update(recorded)

    def is_open(self, step: Union[Wait, Gate]) -> bool:
        """Whether what ``step`` waits for has come."""
        if isinstance(step, Gate):
            return self.gates[step.name](*step.args)
        return self.recorded.get(step.event, step.at - 1) >= step.at

    def record(self, record: Record) -> None:
        """Record an event. Its index may only grow: a step back would release nobody and hide a defect."""
        previous = self.recorded.get(record.event)
        if previous is not None and record.at <= previous:
            raise ScheduleError(f"event {record.event} was recorded as {record.at} after {previous}")
        self.recorded[record.event] = record.at

    def call(self, stream: str, op: Op) -> None:
        """Run the handler of ``op`` on the clock of ``stream``."""
        self.beat(stream)
        cpu, started = time.thread_time(), time.perf_counter()
        self.handlers[op.name](*op.args)
        ended = time.perf_counter()
        self.cpu_s[stream] = self.cpu_s.get(stream, 0.0) + time.thread_time() - cpu
        self.busy_s[stream] += ended - started
        self.op_s[op.name] += ended - started
        trace = self.trace  # another stream may switch it off just now
        if trace is not None:
            trace(stream, op.name, op.args, started, ended)

    def solo_seconds(self) -> Optional[Tuple[float, float]]:
        """Seconds of an update on a policy stream and on the learner's, each alone, if that was measured."""
        return None

    def cpu_seconds(self) -> Tuple[float, float]:
        """Processor seconds so far of a policy stream, on average, and of the learner's."""
        policies = [s for name, s in list(self.cpu_s.items()) if name != LEARNER]
        return sum(policies) / max(1, len(policies)), self.cpu_s.get(LEARNER, 0.0)

    def describe(self) -> str:
        """What the work runs on, for the summary of a run."""
        return "the CPU"

    @abc.abstractmethod
    def run(self, streams: Mapping[str, Iterator[Step]]) -> None:
        """Run all streams to their ends, or until :meth:`stop`."""

    @abc.abstractmethod
    def stop(self) -> None:
        """End every stream at its next step. Called from a handler."""
