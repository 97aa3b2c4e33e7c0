"""The thin layer between the ``cuda`` executor and its device: streams, events, graphs, pinned memory.

Work that is handed to a stream is *enqueued*: it runs later, in order with what else is on that stream, and after
whatever the stream was made to wait for. The host goes on at once. A test can put another layer in the place of CUDA.
"""

from __future__ import annotations

import abc
import contextlib
from typing import Any, Callable, Iterator

import torch
from torch import Tensor

from isaac_appo.kernels import use_stream, warp_stream, wp

Work = Callable[[], None]


class Event(abc.ABC):
    """A point on a stream."""

    @abc.abstractmethod
    def done(self) -> bool:
        """Whether the stream has passed it; asks without waiting."""

    @abc.abstractmethod
    def block(self) -> None:
        """Make the host wait for it."""

    @abc.abstractmethod
    def seconds_since(self, earlier: Event) -> float:
        """Device time between two timed events that are done."""


class Graph:
    """Work recorded once: the same kernels on the same memory, each time it is replayed."""


class Stream(abc.ABC):
    """A queue of work on the device."""

    @abc.abstractmethod
    def run(self, work: Work) -> None:
        """Enqueue ``work``."""

    @abc.abstractmethod
    def run_blocking(self, work: Work) -> None:
        """Enqueue work that itself makes the host wait for this stream (a host-synchronous env)."""

    @abc.abstractmethod
    def wait(self, event: Event) -> None:
        """What is enqueued from now on runs after ``event``."""

    @abc.abstractmethod
    def record(self, timed: bool = False) -> Event:
        """Mark where the stream stands now."""

    @abc.abstractmethod
    def capture(self, work: Work) -> Graph:
        """Record ``work`` without running it. It must have run on this stream before, which loads and allocates."""

    @abc.abstractmethod
    def replay(self, graph: Graph) -> None:
        """Enqueue a graph that was captured on this stream."""


class Device(abc.ABC):
    """Makes streams."""

    @abc.abstractmethod
    def stream(self, name: str, urgent: bool) -> Stream:
        """A new stream; an ``urgent`` one goes first where both have work."""

    @abc.abstractmethod
    def pinned(self, like: Tensor) -> Tensor:
        """Host memory that a stream can copy to while the host goes on."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Make the host wait for all streams."""

    @abc.abstractmethod
    def host_may_wait(self) -> Any:
        """A context in which the host may wait. Anywhere else a wait is a defect."""

    @abc.abstractmethod
    def describe(self) -> str:
        """Its name and the state of its memory, for the summary of a run."""


class CudaEvent(Event):
    """``torch.cuda.Event``."""

    def __init__(self, stream: torch.cuda.Stream, timed: bool) -> None:
        self.torch = torch.cuda.Event(enable_timing=timed)
        self.torch.record(stream)

    def done(self) -> bool:
        """See :class:`Event`."""
        return bool(self.torch.query())

    def block(self) -> None:
        """See :class:`Event`."""
        self.torch.synchronize()

    def seconds_since(self, earlier: Event) -> float:
        """See :class:`Event`."""
        assert isinstance(earlier, CudaEvent)
        return float(earlier.torch.elapsed_time(self.torch)) / 1000.0


class CudaGraph(Graph):
    """``torch.cuda.CUDAGraph``, with Warp's launches inside."""

    def __init__(self) -> None:
        self.torch = torch.cuda.CUDAGraph()
        self.warp: Any = None


class CudaStream(Stream):
    """A non-blocking CUDA stream, shared by torch and Warp, with a memory pool of its own for its graphs.

    Graphs of one stream never run at the same time, so that they may share memory; those of two streams may not.
    """

    def __init__(self, device: torch.device, urgent: bool) -> None:
        self._device = device
        self.torch = torch.cuda.Stream(device, priority=-1 if urgent else 0)
        self._warp = warp_stream(self.torch)
        self._pool = torch.cuda.graph_pool_handle()

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Where torch and Warp launch: here. Entering makes no stream wait for another."""
        before = wp.get_stream(str(self._device))
        with torch.cuda.stream(self.torch):
            wp.set_stream(self._warp, str(self._device), sync=False)
            use_stream(self._warp)
            try:
                yield
            finally:
                use_stream(None)
                wp.set_stream(before, str(self._device), sync=False)

    def run(self, work: Work) -> None:
        """See :class:`Stream`."""
        with self.current():
            work()

    def run_blocking(self, work: Work) -> None:
        """See :class:`Stream`."""
        self.run(work)

    def wait(self, event: Event) -> None:
        """See :class:`Stream`."""
        assert isinstance(event, CudaEvent)
        self.torch.wait_event(event.torch)

    def record(self, timed: bool = False) -> Event:
        """See :class:`Stream`."""
        return CudaEvent(self.torch, timed)

    def capture(self, work: Work) -> Graph:
        """See :class:`Stream`. Warp is told, so that its loops become nodes of the graph instead of host waits."""
        graph = CudaGraph()
        with self.current(), torch.cuda.graph(
            graph.torch, pool=self._pool, stream=self.torch, capture_error_mode="thread_local"
        ):
            wp.capture_begin(stream=self._warp, force_module_load=False, external=True)
            try:
                work()
            finally:
                graph.warp = wp.capture_end(stream=self._warp)
        return graph

    def replay(self, graph: Graph) -> None:
        """See :class:`Stream`."""
        assert isinstance(graph, CudaGraph)
        with torch.cuda.stream(self.torch):
            graph.torch.replay()


class CudaDevice(Device):
    """One NVIDIA GPU."""

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def stream(self, name: str, urgent: bool) -> Stream:
        """See :class:`Device`. CUDA's priorities are hints: a running block is never taken off."""
        return CudaStream(self._device, urgent)

    def pinned(self, like: Tensor) -> Tensor:
        """See :class:`Device`."""
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def synchronize(self) -> None:
        """See :class:`Device`."""
        torch.cuda.synchronize(self._device)

    @contextlib.contextmanager
    def host_may_wait(self) -> Iterator[None]:
        """See :class:`Device`: where ``torch.cuda.set_sync_debug_mode`` makes a wait an error, it does not here."""
        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("default")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(mode)

    def describe(self) -> str:
        """See :class:`Device`."""
        torch_mb = torch.cuda.memory_reserved(self._device) / 2**20
        warp_pool = "on" if wp.is_mempool_enabled(str(self._device)) else "OFF (graphs cannot allocate)"
        name = torch.cuda.get_device_name(self._device)
        return f"{name}, {torch_mb:.0f} MiB reserved by torch, Warp's memory pool {warp_pool}"
