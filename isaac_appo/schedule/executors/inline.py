"""One thread, fixed interleaving: the streams take turns, one step each, skipping one that waits."""

from __future__ import annotations

from typing import Dict, Iterator, Mapping, Optional

from isaac_appo.schedule.executors.base import Condition, Executor, Handler, ScheduleError
from isaac_appo.schedule.program import Op, Record, Step


class InlineExecutor(Executor):
    """Deterministic by construction, in wall order too: for debugging, for ``sync``, and to compare others with."""

    def __init__(self, handlers: Mapping[str, Handler], gates: Optional[Mapping[str, Condition]] = None) -> None:
        super().__init__(handlers, gates)
        self._stopped = False

    def run(self, streams: Mapping[str, Iterator[Step]]) -> None:
        """See :meth:`Executor.run`."""
        self.busy_s = dict.fromkeys(streams, 0.0)
        pending: Dict[str, Step] = {}
        active = dict(streams)
        while active and not self._stopped:
            progressed = False
            for name in list(active):
                progressed |= self._advance(name, active, pending)
            if not progressed and active:
                raise ScheduleError(f"deadlock: {pending} with recorded {self.recorded}")

    def stop(self) -> None:
        """See :meth:`Executor.stop`."""
        self._stopped = True

    def _advance(self, name: str, active: Dict[str, Iterator[Step]], pending: Dict[str, Step]) -> bool:
        """Take one step of a stream; false if it waits."""
        if self._stopped:
            return True
        step = pending.pop(name, None) or next(active[name], None)
        if step is None:
            del active[name]
        elif isinstance(step, Op):
            self.call(name, step)
        elif isinstance(step, Record):
            self.record(step)
        elif not self.is_open(step):
            pending[name] = step
            return False
        return True
