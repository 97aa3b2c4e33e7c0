"""One host thread that enqueues all streams of a program on a GPU: waits happen on the device only.

The host takes the streams in turns, as ``inline`` does, and a stream's wait holds the *host's* turn only until the
event has been recorded, that is enqueued; the device then waits for it to happen. So every event is recorded before it
is waited for, and two streams can never wait for each other.

What a handler leaves for the device it hands to :meth:`CudaExecutor.launch`. Work with a key is captured in a CUDA
graph at its second occurrence: the first one is the warm-up, and as it is real work, it leaves nothing to restore.
Consecutive work of a policy stream becomes one graph, up to the next wait or record: a whole rollout in lockstep.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import (
    Any,
    Callable,
    Deque,
    Dict,
    Hashable,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Set,
    Tuple,
    Union,
)

from isaac_appo.schedule.executors.base import Condition, Handler
from isaac_appo.schedule.executors.device import Device, Event, Graph, Stream, Work
from isaac_appo.schedule.executors.inline import InlineExecutor
from isaac_appo.schedule.program import LEARNER, Gate, Op, Record, Step, Wait

HISTORY = 64
"""Records of an event that are kept; a wait for an older one waits for the oldest of these, which comes after it."""
COPY = "copy"
"""The stream of copies to the host."""


class Span(NamedTuple):
    """Work between two timed events."""

    stream: str
    begin: Event
    end: Event


class CudaExecutor(InlineExecutor):
    """Interprets a program on one device.

    Args:
        handlers, gates: see :class:`Executor`; handlers enqueue by :meth:`launch` and never wait.
        device: the layer to enqueue on.
        graphs: whether work with a key is captured.
        learner_turn: steps that the learner takes in its turn, to a policy stream's one. With a host-synchronous env,
            as many as spread an update over the env steps of a slab, so that the device has work while one holds the
            host up.
        solo: updates during which the streams take turns on the device and are timed; results do not depend on it.

    Attributes:
        streams: the device streams by name, ``copy`` among them.
        waited: the last index that a stream has waited for, by stream and event.
    """

    host_clock = False

    def __init__(
        self,
        handlers: Mapping[str, Handler],
        gates: Optional[Mapping[str, Condition]],
        device: Device,
        graphs: bool = True,
        learner_turn: int = 1,
        solo: range = range(0),
    ) -> None:
        super().__init__(handlers, gates)
        self.device, self.graphs = device, graphs
        self.streams: Dict[str, Stream] = {}
        self.waited: Dict[Tuple[str, str], int] = {}
        self._learner_turn, self._solo = learner_turn, solo
        self._events: Dict[str, Deque[Tuple[int, Event]]] = {}
        self._batch: List[Tuple[Hashable, Work]] = []
        self._batches: Dict[str, List[Tuple[Hashable, Work]]] = {}
        self._warm: Set[Hashable] = set()
        self._captured: Dict[Hashable, Graph] = {}
        self._name = LEARNER
        self._update = solo.start - 1
        self._spans: List[Span] = []

    def run(self, streams: Mapping[str, Iterator[Step]]) -> None:
        """See :meth:`Executor.run`. Returns when the device has done all that was enqueued."""
        self.make_streams(streams, urgent=lambda name: name not in (LEARNER, COPY))
        self._batches = {name: [] for name in streams}
        try:
            super().run(streams)
        finally:
            self.drain()

    def make_streams(self, names: Any, urgent: Callable[[str], bool]) -> None:
        """New device streams, after all that was enqueued on the old ones and on the default stream."""
        self.drain()
        self.streams = {name: self.device.stream(name, urgent(name)) for name in (*names, COPY)}
        self._captured.clear()  # a graph's memory belongs to its stream

    def drain(self) -> None:
        """Make the host wait for the device: at the ends of a run, and where a checkpoint is taken."""
        with self.device.host_may_wait():
            self.device.synchronize()

    def launch(self, key: Hashable, work: Callable[..., None], *args: Any, blocking: bool = False) -> None:
        """Enqueue ``work(*args)`` on the stream whose step this is.

        Args:
            key: what makes the work the same as another's: same kernels, same memory. ``None``: never the same.
            blocking: whether the work itself makes the host wait.
        """
        bound = partial(work, *args)
        if key is not None and self.graphs:
            self._batches[self._name].append((key, bound))
            return
        self.flush()
        stream = self.streams[self._name]
        self._timed(partial(stream.run_blocking if blocking else stream.run, bound))

    def flush(self) -> None:
        """Enqueue what the current stream has gathered, as one graph."""
        batch = self._batches[self._name]
        if not batch:
            return
        self._batches[self._name] = []
        stream, key = self.streams[self._name], (self._name, *(key for key, _ in batch))
        work = partial(_run_all, [work for _, work in batch])
        if key not in self._warm:
            self._warm.add(key)
            self._timed(partial(stream.run, work))
            return
        if key not in self._captured:
            with self.device.host_may_wait():
                self._captured[key] = stream.capture(work)
        self._timed(partial(stream.replay, self._captured[key]))

    def wait_for(self, event: str, at: int) -> None:
        """Make the current stream wait, on the device, until ``event`` has happened with an index of at least ``at``.

        One that was marked before this process began, or long ago, has.
        """
        self.flush()
        found = self._find(event, at)
        if found is not None:
            self.streams[self._name].wait(found)

    def record_here(self) -> Event:
        """Where the current stream stands."""
        self.flush()
        return self.streams[self._name].record()

    def wait_here(self, event: Event) -> None:
        """Make the current stream wait on the device."""
        self.flush()
        self.streams[self._name].wait(event)

    def happened(self, event: str, at: int) -> bool:
        """Whether the device has passed ``event`` as of ``at``, which has been recorded."""
        found = self._find(event, at)
        return found is None or found.done()

    def call(self, stream: str, op: Op) -> None:
        """See :meth:`Executor.call`. Each operation of the learner is a graph of its own: a minibatch."""
        if op.name == "load":
            self._update = op.args[0]
        super().call(stream, op)
        if stream == LEARNER:
            self.flush()

    def record(self, record: Record) -> None:
        """See :meth:`Executor.record`."""
        self.flush()
        super().record(record)
        event = self.streams[self._name].record()
        self._events.setdefault(record.event, deque(maxlen=HISTORY)).append((record.at, event))

    def is_open(self, step: Union[Wait, Gate]) -> bool:
        """See :meth:`Executor.is_open`. Passing makes the device wait; a gate sees to that itself."""
        if not super().is_open(step):
            return False
        if isinstance(step, Wait):
            self.waited[self._name, step.event] = step.at
            self.wait_for(step.event, step.at)
        return True

    def solo_seconds(self) -> Optional[Tuple[float, float]]:
        """Device seconds of an update on a policy stream and on the learner's, each alone; ``None`` before they are
        known. Does not wait."""
        spans = self._spans
        if not spans or self._update < self._solo.stop or not spans[-1].end.done():
            return None
        policies = len(self.streams) - 2
        total = {is_learner: 0.0 for is_learner in (False, True)}
        for span in spans:
            total[span.stream == LEARNER] += span.end.seconds_since(span.begin)
        return total[False] / len(self._solo) / policies, total[True] / len(self._solo)

    def describe(self) -> str:
        """Graphs and memory, for the summary of a run."""
        graphs = f"{len(self._captured)} captured" if self.graphs else "off"
        return f"{self.device.describe()}, graphs {graphs}"

    def _find(self, event: str, at: int) -> Optional[Event]:
        """The first kept record of ``event`` with an index of at least ``at``."""
        return next((found for index, found in self._events.get(event, ()) if index >= at), None)

    def _timed(self, enqueue: Work) -> None:
        """Enqueue; in solo updates after all that was enqueued before on any stream, and between two timed events."""
        if self._update not in self._solo:
            enqueue()
            return
        stream = self.streams[self._name]
        for earlier in [self._spans[-1].end] if self._spans else [s.record() for s in self.streams.values()]:
            stream.wait(earlier)
        begin = stream.record(timed=True)
        enqueue()
        self._spans.append(Span(self._name, begin, stream.record(timed=True)))

    def _advance(self, name: str, active: Dict[str, Iterator[Step]], pending: Dict[str, Step]) -> bool:
        progressed = False
        for _ in range(self._learner_turn if name == LEARNER else 1):
            self._name = name
            if name not in active or not super()._advance(name, active, pending):
                break
            progressed = True
        return progressed


def _run_all(batch: List[Work]) -> None:
    for work in batch:
        work()
