"""A device without a GPU: it defers all work, runs it in an adversarial order, and refuses a host that waits.

Each stream is a queue. What is at its head may run as soon as the events that were enqueued before it allow; nothing
else orders two streams. Graphs are recorded kernel by kernel, torch's and Warp's, with the arguments and memory of the
first run, so that a replay does what a GPU would do: host code does not run again, and host values are frozen.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isaac_appo.kernels import wp
from isaac_appo.schedule.executors.device import Device, Event, Graph, Stream, Work

BIASES = ("uniform", "lazy", "eager", "policy first", "learner first", "fickle")
"""How much runs when something is enqueued (nothing, all or some of it; none of it from ``policy first`` on, until the
host waits), and which stream is taken first. ``fickle`` changes its favourite now and then."""


class HostWait(RuntimeError):  # noqa: N818 (it says what the host did)
    """The host waited where it must not."""


class FakeEvent(Event):
    def __init__(self, device: FakeDevice) -> None:
        self.device, self.at = device, -1.0
        self.passed = False

    def done(self) -> bool:
        return self.passed

    def block(self) -> None:
        self.device.require_leave("an event")
        self.device.progress(lambda: self.passed)

    def seconds_since(self, earlier: Event) -> float:
        assert isinstance(earlier, FakeEvent) and self.passed and earlier.passed
        return self.at - earlier.at


class Item(NamedTuple):
    """One entry of a queue: work, an event to pass, or an event to wait for."""

    work: Optional[Work] = None
    passes: Optional[FakeEvent] = None
    awaits: Optional[FakeEvent] = None


class FakeStream(Stream):
    def __init__(self, device: FakeDevice, name: str, urgent: bool) -> None:
        self.device, self.name, self.urgent = device, name, urgent
        self.queue: Deque[Item] = deque()

    def run(self, work: Work) -> None:
        self._enqueue(Item(work))

    def run_blocking(self, work: Work) -> None:
        self.device.progress(lambda: not self.queue)
        self.device.execute(self, work)

    def wait(self, event: Event) -> None:
        assert isinstance(event, FakeEvent)
        self._enqueue(Item(awaits=event))

    def record(self, timed: bool = False) -> Event:
        event = FakeEvent(self.device)
        self._enqueue(Item(passes=event))
        return event

    def capture(self, work: Work) -> Graph:
        self.device.require_leave("a capture")
        return FakeGraph(work)

    def replay(self, graph: Graph) -> None:
        assert isinstance(graph, FakeGraph)
        self._enqueue(Item(graph.replay))

    def _enqueue(self, item: Item) -> None:
        self.queue.append(item)
        self.device.enqueued()

    def can_run(self) -> bool:
        head = self.queue[0] if self.queue else None
        return head is not None and (head.awaits is None or head.awaits.passed)

    def run_head(self) -> None:
        item = self.queue.popleft()
        if item.work is not None:
            self.device.execute(self, item.work)
        if item.passes is not None:
            item.passes.passed, item.passes.at = True, self.device.now


class FakeDevice(Device):
    """Args: ``seed`` picks the adversary; ``cost`` gives the duration of work by its stream's name.

    Attributes:
        log: names of the streams, in the order in which work ran.
        guard: put around all work.
    """

    def __init__(self, seed: int = 0, cost: Callable[[str], float] = lambda stream: 1.0) -> None:
        self.random, self.bias = random.Random(seed), BIASES[seed % len(BIASES)]
        self.favourite = self.bias.split()[0] if self.bias.endswith("first") else ""
        self.guard: Callable[[Work], Work] = lambda work: work
        self.streams: List[FakeStream] = []
        self.now, self.cost = 0.0, cost
        self.log: List[str] = []
        self.replays = 0
        self._leave = False

    def stream(self, name: str, urgent: bool) -> Stream:
        self.streams.append(FakeStream(self, name, urgent))
        return self.streams[-1]

    def pinned(self, like: Tensor) -> Tensor:
        full = torch.full_like(like, -77)
        return full.fill_(float("nan")) if like.is_floating_point() else full

    def synchronize(self) -> None:
        self.require_leave("the device")
        self.progress(lambda: not any(stream.queue for stream in self.streams))

    @contextlib.contextmanager
    def host_may_wait(self) -> Iterator[None]:
        before, self._leave = self._leave, True
        try:
            yield
        finally:
            self._leave = before

    def describe(self) -> str:
        return "a fake device"

    def require_leave(self, what: str) -> None:
        if not self._leave:
            raise HostWait(f"the host waits for {what}")

    def execute(self, stream: FakeStream, work: Work) -> None:
        before, self._leave = self._leave, False
        self.guard(work)()
        self._leave = before
        self.now += self.cost(stream.name)
        self.log.append(stream.name)

    def enqueued(self) -> None:
        """Some of what could run does, or none, or all."""
        if self.bias not in ("uniform", "eager"):
            return
        count = self.random.randrange(4)
        while (self.bias == "eager" or count > 0) and self._run_one():
            count -= 1

    def progress(self, until: Callable[[], bool]) -> None:
        while not until():
            if not self._run_one():
                raise AssertionError(f"deadlock on the device: {[(s.name, len(s.queue)) for s in self.streams]}")

    def _run_one(self) -> bool:
        ready = [stream for stream in self.streams if stream.can_run()]
        if not ready:
            return False
        if self.bias == "fickle" and self.random.random() < 0.02:
            self.favourite = self.random.choice(("policy", "learner"))
        ready = [stream for stream in ready if stream.name.startswith(self.favourite)] or ready
        self.random.choice(ready).run_head()
        return True


class FakeGraph(Graph):
    """Records at its first replay, which runs the work for real; capturing alone runs nothing."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.calls: List[Work] = []

    def replay(self) -> None:
        if not self.calls:
            with Recorder(self.calls):
                self.work()
            return
        with torch.no_grad():
            for call in self.calls:
                call()


class Recorder(TorchDispatchMode):
    """Writes down every kernel, with its arguments and the memory of its results."""

    active: Optional[Recorder] = None

    def __init__(self, calls: List[Work]) -> None:
        super().__init__()
        self.calls = calls
        self._launch = wp.launch

    def __enter__(self) -> Recorder:
        super().__enter__()
        wp.launch, Recorder.active = self._record_launch, self
        return self

    def __exit__(self, *error: Any) -> None:
        wp.launch, Recorder.active = self._launch, None
        super().__exit__(*error)

    def __torch_dispatch__(self, func: Any, types: Any, args: Tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if "_local_scalar_dense" in func.name():
            raise HostWait("a captured kernel's result is read")
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        self.calls.append(lambda: _again(func, args, kwargs, result))
        return result

    def _record_launch(self, kernel: Any, dim: Any, inputs: Any = (), outputs: Any = (), **more: Any) -> None:
        frozen = list(inputs), list(outputs)
        self.calls.append(lambda: self._launch(kernel, dim, inputs=frozen[0], outputs=frozen[1], **more))
        self.calls[-1]()


def _again(func: Any, args: Tuple[Any, ...], kwargs: Dict[str, Any], result: Any) -> None:
    for old, new in zip(tree_leaves(result), tree_leaves(func(*args, **kwargs))):
        if isinstance(old, Tensor) and old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
            old.copy_(new)


def external(function: Callable[..., Any]) -> Callable[..., Any]:
    """``function`` as one kernel that a recording takes as it is: what is neither torch nor Warp, such as MuJoCo."""

    def called(*args: Any) -> Any:
        recorder = Recorder.active
        if recorder is None:
            return function(*args)
        recorder.__exit__(None, None, None)
        try:
            result = function(*args)
        finally:
            recorder.__enter__()
        recorder.calls.append(lambda: function(*args))
        return result

    return called
