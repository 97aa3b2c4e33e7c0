"""What the streams do with each other, told by the device: versions, snapshots, overlap, memory."""

from __future__ import annotations

import gc
from typing import Any, Dict, List, Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.executors.cuda import CudaExecutor
from isaac_appo.schedule.executors.device import CudaDevice, Event
from isaac_appo.schedule.program import LEARNER, policy_name
from tests.gpu.layers import CUDA, LAYERS, PHYSICS, pipeline_of

CYCLES = 20_000_000
"""Of a long kernel: about 10 ms."""


# ---------------------------------------------------------------------------------------------------------------- lag


@pytest.mark.parametrize(("lag", "expected"), [(0, 0), (1, 1), (2, 2)])
@pytest.mark.parametrize("layer", LAYERS)
def test_lag_by_the_devices_own_version_words(layer: str, lag: int, expected: int) -> None:
    pipeline, _ = pipeline_of(layer, PHYSICS[1], lag=lag, bias="fickle")
    policy, load = pipeline.learner.policy, pipeline.learner.load
    seen = torch.full((10, 2), -9, dtype=torch.int64, device=policy.version.device)

    def watched(index: int, lag: int, empty: bool) -> None:
        rows = torch.cat([policy.version - slab.version_TN for slab in pipeline.learner.slabs_of(index)])
        seen[index].copy_(torch.stack([rows.min(), rows.max()]))
        load(index, lag, empty)

    pipeline.learner.load = watched  # type: ignore[method-assign]
    pipeline.run()
    assert seen.tolist() == [[min(u, expected)] * 2 for u in range(10)]


# ---------------------------------------------------------------------------------------------------------- snapshots


class InHalves(DevicePipeline):
    """Publishes and adopts by two copies each, with time between them, and compares what was adopted."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.published: Dict[int, Tensor] = {}
        self.verdicts = torch.zeros(2, dtype=torch.int64, device=self.learner.policy.bytes.device)
        """Adopted snapshots, and torn ones."""

    def _publish(self, snapshot: int) -> None:
        policy, version = self.learner.policy, self._version
        self._launch(None, lambda: self.published.__setitem__(version, policy.bytes.clone()))
        super()._publish(snapshot)

    def _launch(self, key: Any, work: Any, *args: Any, blocking: bool = False) -> None:
        if work not in (self.ring.publish, self.ring.adopt):
            super()._launch(key, work, *args, blocking=blocking)
            return
        policy, slot = args
        pair = policy.bytes, self.ring.bytes[slot]
        source, target = pair if work == self.ring.publish else pair[::-1]
        half = len(source) // 2
        super()._launch(None, lambda: target[:half].copy_(source[:half]))
        if isinstance(self.device, CudaDevice):
            super()._launch(None, torch.cuda._sleep, CYCLES)
        super()._launch(None, lambda: target[half:].copy_(source[half:]))
        if work == self.ring.adopt:
            super()._launch(None, self._compare, policy, self._snapshot_versions[slot])

    def _compare(self, policy: Any, version: int) -> None:
        torn = (policy.bytes != self.published[version]).any()
        self.verdicts.add_(torch.stack([torch.ones_like(torn), torn]).long())


def verdicts(layer: str, bias: str, **schedule: Any) -> List[int]:
    """Adopted snapshots and torn ones; to enqueue an update takes long, so that the worker gets ahead."""
    many = {"minibatch_size": 8, "minibatches": 32}
    pipeline, _ = pipeline_of(layer, num_updates=8, learner=many, make=InHalves, bias=bias, **schedule)
    pipeline.run()
    assert isinstance(pipeline, InHalves)
    found: List[int] = pipeline.verdicts.tolist()
    return found


FREE = {"max_policy_lag": 4, "lead": 64}


@pytest.mark.parametrize("schedule", [{"lag": 1}, {"free": FREE}], ids=["lockstep", "free"])
@pytest.mark.parametrize("layer", LAYERS)
def test_no_snapshot_is_torn(layer: str, schedule: Dict[str, Any]) -> None:
    for bias in ("learner first", "fickle") if layer == "fake" else ("",):
        adopted, torn = verdicts(layer, bias, **schedule)
        assert adopted >= 3 and torn == 0


def test_without_the_wait_for_readers_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the order is ours to choose."""
    monkeypatch.setattr(CudaExecutor, "wait_here", lambda self, event: None)
    assert any(verdicts("fake", bias, free=FREE)[1] for bias in ("learner first", "fickle"))


# ------------------------------------------------------------------------------------------------------------ overlap


class Watched(DevicePipeline):
    """Puts a timed event at both ends of each rollout and of each update."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.marks: Dict[str, Dict[int, Event]] = {}

    def _mark(self, name: str, index: int, stream: str) -> None:
        self._cuda.flush()
        self.marks.setdefault(name, {})[index] = self._cuda.streams[stream].record(timed=True)

    def _adopt(self, worker: int, slab: int, snapshot: int) -> None:
        super()._adopt(worker, slab, snapshot)
        self._mark("rollout begins", slab, policy_name(worker))

    def _take_cut(self, worker: int, next_slab: int) -> None:
        super()._take_cut(worker, next_slab)
        self._mark("rollout ends", next_slab - 1, policy_name(worker))

    def _load(self, index: int) -> None:
        self._mark("update begins", index, LEARNER)
        super()._load(index)

    def _finish(self, index: int) -> None:
        super()._finish(index)
        self._mark("update ends", index, LEARNER)

    def intervals(self, what: str) -> List[Tuple[float, float]]:
        """Begin and end in seconds, after the updates that are timed in turns."""
        zero, begins, ends = self.marks["rollout begins"][0], self.marks[what + " begins"], self.marks[what + " ends"]
        return [(begins[i].seconds_since(zero), ends[i].seconds_since(zero)) for i in range(10, 20)]


@pytest.mark.parametrize(("lag", "overlaps"), [(1, True), (0, False)])
@pytest.mark.parametrize("layer", LAYERS)
def test_overlap_is_seen_from_events(layer: str, lag: int, overlaps: bool) -> None:
    """An update and a rollout that go on at the same time: there are some, and in turns there are none."""
    depth = 200 if layer == "cuda" else 1
    pipeline, _ = pipeline_of(layer, lag=lag, make=Watched, num_updates=20, depth=depth)
    assert isinstance(pipeline, Watched)
    pipeline.run()
    rollouts, updates = pipeline.intervals("rollout"), pipeline.intervals("update")
    assert len(updates) == 10
    both = [u for u in updates if any(u[0] < end and begin < u[1] for begin, end in rollouts)]
    assert bool(both) == overlaps, (rollouts, updates)


@pytest.mark.parametrize("layer", [CUDA])
def test_two_streams_sleep_at_the_same_time(layer: str) -> None:
    """The layer alone: a long kernel on each begins before the other's has ended."""
    device = CudaDevice(torch.device("cuda:0"))
    streams = [device.stream("policy/0", True), device.stream("learner", False)]
    events = []
    for stream in streams * 2:  # the first time round loads the kernel
        begin = stream.record(timed=True)
        stream.run(lambda: torch.cuda._sleep(10 * CYCLES))
        events.append((begin, stream.record(timed=True)))
    with device.host_may_wait():
        device.synchronize()
    (begin_a, end_a), (begin_b, end_b) = events[2:]
    assert end_a.seconds_since(begin_b) > 0 and end_b.seconds_since(begin_a) > 0


# ------------------------------------------------------------------------------------------------------------- memory


def memory(layer: str) -> Tuple[int, ...]:
    """Bytes of live tensors, and on CUDA what is reserved beside them."""
    if layer == "cuda":
        return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
    gc.collect()
    tensors = [x for x in gc.get_objects() if type(x) in (Tensor, torch.nn.Parameter)]
    return (sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in tensors}.values()),)


@pytest.mark.parametrize("layer", LAYERS)
def test_memory_is_flat(layer: str) -> None:
    """Over 200 updates on a GPU, over 20 here; the host stands still where it looks."""
    first, last = (50, 250) if layer == "cuda" else (20, 40)
    seen: Dict[int, Tuple[int, ...]] = {}
    pipeline, _ = pipeline_of(layer, PHYSICS[0], num_updates=last + 2)
    plain = pipeline._on_boundary
    pipeline._settle = lambda update: update in (first, last)

    def watched(report: Any) -> None:
        plain(report._replace(episodes=[]))
        if report.update in (first, last):
            seen[report.update] = memory(layer)

    pipeline._on_boundary = watched
    pipeline.run()
    assert seen[first] == seen[last]
