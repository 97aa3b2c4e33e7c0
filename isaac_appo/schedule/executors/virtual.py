"""A simulated clock and one thread: exact makespans from scripted durations, or an adversary that picks what runs next.

An operation is an interval here. It starts and ends at different instants, and other streams get on in between.
"""

from __future__ import annotations

import heapq
import random
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

from isaac_appo.schedule.executors.base import Condition, Executor, Handler, ScheduleError
from isaac_appo.schedule.program import Gate, Op, Record, Step, Wait

Durations = Union[Mapping[str, float], Callable[[str, Op], float]]
"""Seconds by name of the operation (0 for one that is left out), or computed from stream and operation."""
Picker = Callable[[Sequence[int]], int]
"""Picks one of two or more streams that can get on, given in the order in which the streams are passed to ``run``."""
BIASES = ("uniform", "starve", "rush", "alternate")


class Interval:
    """A handler with effects of its own at the start and at the end of the operation. A plain one acts at the start."""

    __slots__ = ("end", "start")

    def __init__(self, start: Handler, end: Handler) -> None:
        self.start, self.end = start, end

    def __call__(self, *args: int) -> None:
        """As the other executors see it: both at once."""
        self.start(*args)
        self.end(*args)


def adversary(seed: int, bias: str = "uniform") -> Picker:
    """A seeded picker: ``uniform``, ``starve`` one stream, ``rush`` one as far as it gets, or ``alternate``.

    Whom it starves or rushes changes now and then, how often differs from seed to seed.
    """
    if bias not in BIASES:
        raise ValueError(f"bias={bias} is not one of {', '.join(BIASES)}")
    rng = random.Random(seed)
    uniform, fickle = rng.random, 2.0 ** -rng.randint(2, 5)
    chosen = -1  # whom to starve or rush, or who was last; drawn anew now and then

    def anyone(streams: Sequence[int]) -> int:
        return streams[int(uniform() * len(streams))]

    def pick(enabled: Sequence[int]) -> int:
        nonlocal chosen
        if bias == "uniform":
            return anyone(enabled)
        if chosen < 0 or uniform() < fickle:
            chosen = anyone(enabled)
        if bias == "starve":
            return anyone([k for k in enabled if k != chosen])
        if bias == "alternate":
            chosen = next((k for k in enabled if k > chosen), enabled[0])
        elif chosen not in enabled:
            chosen = anyone(enabled)
        return chosen

    return pick


def _nothing(*args: int) -> None:
    """What a plain handler does at the end."""


class _Cursor:
    """Where a stream stands."""

    __slots__ = ("at", "blocked", "end", "index", "last", "name", "running", "since", "steps")

    def __init__(self, index: int, name: str, steps: Iterable[Step]) -> None:
        self.index = index
        self.name = name
        self.steps: Sequence[Step] = steps if isinstance(steps, (list, tuple)) else list(steps)
        self.at, self.last = 0, len(self.steps)
        self.running: Optional[Op] = None
        self.end: Handler = _nothing
        self.blocked: Optional[Union[Wait, Gate]] = None
        self.since = 0.0

    @property
    def finished(self) -> bool:
        return self.at == self.last


class VirtualExecutor(Executor):
    """Runs no faster or slower than its clock says, and the same way each time.

    With ``pick`` there is no clock: one of the streams that can get on is picked again and again, and it starts its
    next operation, ends the one it is in, or passes what stands between two operations up to the next record. A gate
    that was found closed is asked anew at the next record only.

    Args:
        handlers: operations by name, :class:`Interval` or plain.
        gates: conditions by name.
        durations: seconds of each operation; whatever can start starts at once. Not together with ``pick``.
        pick: who gets on next, such as an :func:`adversary`.

    Attributes:
        now: simulated seconds since the start; the makespan once :meth:`run` has returned.
        choices: what ``pick`` answered, wherever there was a choice: the interleaving.
    """

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        gates: Optional[Mapping[str, Condition]] = None,
        durations: Optional[Durations] = None,
        pick: Optional[Picker] = None,
    ) -> None:
        super().__init__(handlers, gates)
        if durations is not None and pick is not None:
            raise ValueError("a virtual executor has either durations or a picker: leave one out")
        if isinstance(durations, Mapping):
            unknown = sorted(set(durations) - set(handlers))
            if unknown:
                raise ValueError(f"no operation is called {', '.join(unknown)}: there are {sorted(handlers)}")
        self.now = 0.0
        self.choices: List[int] = []
        self._durations = durations if durations is not None else {}
        self._pick = pick
        self._effects = {
            name: (h.start, h.end) if isinstance(h, Interval) else (h, _nothing) for name, h in handlers.items()
        }
        self._cursors: List[_Cursor] = []
        self._stopped = False

    @property
    def idle_s(self) -> Dict[str, float]:
        """Simulated seconds that each stream has spent waiting."""
        return {stream: self.now - busy for stream, busy in self.busy_s.items()}

    def run(self, streams: Mapping[str, Iterable[Step]]) -> None:
        """See :meth:`Executor.run`. Raises :class:`ScheduleError` when the streams wait for each other."""
        self.busy_s = dict.fromkeys(streams, 0.0)
        self._cursors = [_Cursor(k, name, steps) for k, (name, steps) in enumerate(streams.items())]
        if self._pick is None:
            self._simulate()
        else:
            self._explore(self._pick)
        if not self._stopped and not all(cursor.finished for cursor in self._cursors):
            raise ScheduleError(f"deadlock: {'; '.join(map(self._plight, self._cursors))}")

    def stop(self) -> None:
        """See :meth:`Executor.stop`."""
        self._stopped = True

    def _simulate(self) -> None:
        """Earliest end first; ties go to the stream that was named first."""
        running: List[Tuple[float, int]] = []
        while not self._stopped:
            self._settle_all()
            for cursor in self._cursors:
                ready = cursor.running is None and cursor.blocked is None and not cursor.finished
                if ready and not self._stopped:
                    heapq.heappush(running, (self.now + self._start(cursor), cursor.index))
            if not running:
                return
            self.now, index = heapq.heappop(running)
            self._end(self._cursors[index])

    def _settle_all(self) -> None:
        recorded = True
        while recorded:
            recorded = False
            for cursor in self._cursors:
                while cursor.running is None and cursor.blocked is None and self._settle(cursor):
                    recorded = True

    def _explore(self, pick: Picker) -> None:
        cursors, choices = self._cursors, self.choices
        enabled = [cursor.index for cursor in cursors if not cursor.finished]
        while enabled and not self._stopped:
            if len(enabled) > 1:
                index = pick(enabled)
                choices.append(index)
            else:
                index = enabled[0]
            cursor = cursors[index]
            if cursor.running is not None:
                self._end(cursor)
                changed = cursor.at == cursor.last
            elif isinstance(cursor.steps[cursor.at], Op):
                changed = False
                self._begin(cursor)
            else:
                changed = self._settle(cursor) or cursor.blocked is not None or cursor.finished
            if changed:
                enabled = [c.index for c in cursors if c.blocked is None and c.at < c.last]

    def _start(self, cursor: _Cursor) -> float:
        """Start the operation at the cursor on the clock; returns how long it takes."""
        op = self._begin(cursor)
        durations = self._durations
        seconds = durations(cursor.name, op) if callable(durations) else durations.get(op.name, 0.0)
        if seconds < 0:
            raise ValueError(f"{cursor.name}: {op.name}{op.args} takes {seconds} s: durations are 0 or more")
        self.busy_s[cursor.name] += seconds
        self.op_s[op.name] += seconds
        return seconds

    def _begin(self, cursor: _Cursor) -> Op:
        op = cursor.steps[cursor.at]
        assert isinstance(op, Op)
        self.beat(cursor.name)
        start, cursor.end = self._effects[op.name]
        cursor.running = op
        start(*op.args)
        return op

    def _end(self, cursor: _Cursor) -> None:
        op = cursor.running
        assert op is not None
        cursor.end(*op.args)
        cursor.running = None
        cursor.at += 1

    def _settle(self, cursor: _Cursor) -> bool:
        """Pass waits and gates as far as they are open, up to and including a record; true if there was one."""
        steps, at = cursor.steps, cursor.at
        while at < len(steps):
            step = steps[at]
            if isinstance(step, Op):
                break
            if isinstance(step, Record):
                cursor.at = at + 1
                self.record(step)
                self._wake()
                return True
            if not self.is_open(step):
                cursor.blocked, cursor.since = step, self.now
                break
            at += 1
        cursor.at = at
        return False

    def _wake(self) -> None:
        for cursor in self._cursors:
            step = cursor.blocked
            if step is not None and self.is_open(step):
                cursor.blocked = None
                key = f"{cursor.name} {step.event if isinstance(step, Wait) else step.name}"
                self.wait_s[key] = self.wait_s.get(key, 0.0) + self.now - cursor.since

    def _plight(self, cursor: _Cursor) -> str:
        step = cursor.blocked
        if isinstance(step, Wait):
            recorded = self.recorded.get(step.event, "never recorded")
            return f"{cursor.name} waits for {step.event} {step.at} (now {recorded})"
        if isinstance(step, Gate):
            return f"{cursor.name} waits at gate {step.name}{step.args}"
        return f"{cursor.name} has ended"
