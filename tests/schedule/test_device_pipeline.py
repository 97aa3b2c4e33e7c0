"""The pipeline on a device that defers all work and picks an adversarial order: same results, whatever it does."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.rollout.slab import Slab
from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.executors.cuda import CudaExecutor
from isaac_appo.schedule.hot_loop import HotLoopError, guarded
from isaac_appo.schedule.ledger import LagViolation
from isaac_appo.schedule.outbox import Outbox
from isaac_appo.schedule.pipeline import Pipeline, TrainingDiverged, UpdateReport
from isaac_appo.schedule.program import LEARNER, Free
from isaac_appo.sim.engine import EngineError
from tests.helpers import cartpole_pipeline, weights
from tests.schedule.fake_device import BIASES, FakeDevice, FakeStream, HostWait, external

SEEDS = range(len(BIASES))
Result = Tuple[Tensor, List[UpdateReport]]


def poison(slabs: List[Slab]) -> None:
    for slab in slabs:
        for tensor in slab.tensors().values():
            tensor.fill_(float("nan") if tensor.is_floating_point() else 77 if tensor.dtype != torch.bool else True)


class Poisoned(DevicePipeline):
    """Overwrites each slab once it has been trained on, before it is free."""

    def _finish(self, index: int) -> None:
        super()._finish(index)
        self._launch(None, poison, self.learner.slabs_of(index))


def build(device: Optional[FakeDevice], blocking: bool = True, **settings: Any) -> Tuple[Pipeline, List[UpdateReport]]:
    """A Cartpole pipeline on ``device`` (``None``: inline), its env host-synchronous or not, and where it reports."""
    reports: List[UpdateReport] = []
    if device is not None:
        settings = {"executor": "cuda", "make": Poisoned, **settings}
    pipeline = cartpole_pipeline(settings.pop("on_boundary", reports.append), device=device, **settings)
    for worker in pipeline.workers:
        worker.env.host_synchronous = blocking
        worker.env.engine.step = external(worker.env.engine.step)  # type: ignore[attr-defined]
    return pipeline, reports


def run(device: Optional[FakeDevice], blocking: bool = True, **settings: Any) -> Result:
    pipeline, reports = build(device, blocking, **settings)
    pipeline.run()
    return weights(pipeline), reports


def numbers(reports: List[UpdateReport]) -> List[Any]:
    return [report._replace(settled=True) for report in reports]


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize(("lag", "workers"), [(0, 1), (1, 1), (2, 2)])
def test_lockstep_is_what_it_is_inline(lag: int, workers: int, graphs: bool, blocking: bool) -> None:
    expected, said = run(None, lag=lag, num_workers=workers)
    device = FakeDevice(4 * lag + 2 * graphs + blocking)  # each adversary twice
    result, reports = run(device, blocking, lag=lag, num_workers=workers, graphs=graphs)
    assert torch.equal(result, expected), device.bias
    assert numbers(reports) == numbers(said)
    assert not any(stream.queue for stream in device.streams)


@pytest.mark.parametrize(
    "learner",
    [
        {"shuffle": True, "minibatch_size": 100, "minibatches": 3},
        {"learning_rate": cartpole_pipeline().learner.settings.learning_rate._replace(per_minibatch=False)},
        {"behaviour_anchor": True, "max_grad_norm": 0.0},
    ],
    ids=["shuffle", "standard", "behaviour"],
)
def test_graphs_replay_every_kind_of_minibatch(learner: Dict[str, Any]) -> None:
    expected, said = run(None, learner=learner)
    result, reports = run(FakeDevice(1), blocking=False, learner=learner)
    assert torch.equal(result, expected) and numbers(reports) == numbers(said)


def test_a_value_that_a_graph_freezes_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the recording is for: a step number that is passed by value makes the same noise at each replay."""
    expected = run(None)[0]
    pipeline, _ = build(FakeDevice(1), blocking=False)
    collector = pipeline.workers[0].collector
    clock, act = collector._wp_clock, collector.act

    def frozen(slab: int, t: int) -> None:
        collector._wp_clock = type(clock)([collector.global_step], dtype=clock.dtype, device="cpu")
        act(slab, t)

    collector.act = frozen  # type: ignore[method-assign]
    with pytest.raises(HostWait, match="a captured kernel's result is read"):
        pipeline.run()
    monkeypatch.setattr(type(collector), "global_step", property(lambda self: int(self._step.numpy()[0])))
    pipeline, _ = build(FakeDevice(1), blocking=False)
    collector = pipeline.workers[0].collector
    act = collector.act
    collector.act = frozen  # type: ignore[method-assign]
    pipeline.run()
    assert not torch.equal(weights(pipeline), expected)


def test_a_capture_that_leaves_its_effects_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(None)[0]
    capture = FakeStream.capture

    def careless(self: FakeStream, work: Any) -> Any:
        self.run(work)  # warms up once more, and restores nothing
        return capture(self, work)

    monkeypatch.setattr(FakeStream, "capture", careless)
    assert not torch.equal(run(FakeDevice(1), blocking=False)[0], expected)


class Overflowing(NamedTuple):
    """Makes an engine drop contacts of 3 envs in one env step, counted on the device from then on."""

    clock: Tensor
    at: int

    def plant(self, env: Any) -> None:
        step, env.fault_names = env.engine.step, ("physics/contact_overflow", "physics/constraint_overflow")
        env.engine.step = lambda: (step(), self.clock.add_(1))
        env.engine.count_faults = lambda: torch.cat([3 * (self.clock >= self.at), 0 * self.clock])
        env.engine.check = self.check

    @staticmethod
    def check(faults: List[int]) -> None:
        if any(faults):
            raise EngineError(f"dropped {faults}")


@pytest.mark.parametrize("device", [None, 2])
@pytest.mark.parametrize(("at", "expected"), [(8 * 6, [0, 0, 0, 0, 3]), (8 * 1, [3])], ids=["slab 4", "calibration"])
def test_what_the_physics_drops_is_reported_and_then_refused(
    device: Optional[int], at: int, expected: List[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two updates late on a device that runs ahead, and of the right update all the same; nothing is saved there."""
    pipeline, reports = build(None if device is None else FakeDevice(device), blocking=False)
    pipeline._settle = lambda update: True  # type: ignore[method-assign]
    guard = pipeline._guard

    def strict(metrics: Any) -> None:
        guard(metrics)
        if len(reports) + 1 == len(expected):  # rows may break for want of a contact: that has a name already
            raise TrainingDiverged("masses")

    monkeypatch.setattr(pipeline, "_guard", strict)
    Overflowing(torch.zeros(1, dtype=torch.int64), at).plant(pipeline.workers[0].env)
    with pytest.raises(EngineError, match=r"dropped \[3, 0\]"):
        pipeline.run()
    assert [report.metrics["physics/contact_overflow"] for report in reports] == expected
    assert not any(report.metrics["physics/constraint_overflow"] for report in reports)
    assert [report.settled for report in reports] == [True] * (len(expected) - 1) + [False]


def test_no_checkpoint_holds_a_faulty_slab_that_waits_for_the_learner() -> None:
    """The setting that the error names would not mend it: every resume would end with the same error."""
    refused: List[str] = []

    def on_boundary(report: UpdateReport) -> None:
        if report.update == 3:
            worker = pipeline.workers[0]
            pipeline.state_dict(3)
            worker.cut = (5, worker.cut[1])  # slab 4 is ready
            worker.collector.faults[4 % len(worker.slabs)] = torch.tensor([3, 0])
            with pytest.raises(EngineError) as caught:
                pipeline.state_dict(3)
            refused.append(str(caught.value))
            pipeline.stop()

    pipeline, _ = build(None, on_boundary=on_boundary)
    Overflowing(torch.zeros(1, dtype=torch.int64), 10**6).plant(pipeline.workers[0].env)
    pipeline.run()
    assert refused == ["dropped [3, 0]"]


# ------------------------------------------------------------------------------------------------------ planted bugs


def forget(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for = CudaExecutor.wait_for

    def forgetful(self: CudaExecutor, name: str, at: int) -> None:
        if name != event:
            wait_for(self, name, at)

    monkeypatch.setattr(CudaExecutor, "wait_for", forgetful)


def fails(seed: int, expected: Optional[Tensor] = None, **settings: Any) -> bool:
    try:
        result, reports = run(FakeDevice(seed), blocking=False, **settings)
    except Exception:  # a poisoned slab is found by the ledger or by a guard, whichever looks first
        return True
    broken = any(report.metrics["loss/skipped_steps"] > 0 for report in reports)
    return broken or (expected is not None and not torch.equal(result, expected))


@pytest.mark.parametrize("event", ["ready/0", "snapshot"])
def test_a_missing_event_is_caught_in_lockstep(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``free`` and ``adopted`` are implied by these two there."""
    forget(event, monkeypatch)
    expected = run(None)[0]
    assert any(fails(seed, expected) for seed in SEEDS)


@pytest.mark.parametrize("event", ["free", "ready/0", "snapshot"])
def test_a_missing_event_is_caught_in_free(event: str, monkeypatch: pytest.MonkeyPatch) -> None:
    limits = {"max_policy_lag": 8, "lead": 16}
    if event == "free":
        assert not any(fails(seed, free=limits) for seed in SEEDS)
    forget(event, monkeypatch)
    assert any(fails(seed, free=limits) for seed in SEEDS)


def test_numbers_that_are_copied_before_they_are_there_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    said = numbers(run(None)[1])
    wait = FakeStream.wait

    def forgetful(self: FakeStream, event: Any) -> None:
        if self.name != "copy":
            wait(self, event)

    monkeypatch.setattr(FakeStream, "wait", forgetful)

    def differs(seed: int) -> bool:
        try:
            return numbers(run(FakeDevice(seed))[1]) != said
        except Exception:  # numbers of another update, or none
            return True

    assert any(differs(seed) for seed in SEEDS)


def test_the_host_waits_nowhere_but_for_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """It blocks for the update before the last, and a wait anywhere else is an error."""
    read: List[Tuple[int, int]] = []
    plain = Outbox.read

    def watched(self: Outbox, update: int) -> Any:
        assert isinstance(pipeline, DevicePipeline)
        read.append((update, pipeline._cuda.recorded["free"]))
        return plain(self, update)

    monkeypatch.setattr(Outbox, "read", watched)
    pipeline, _ = build(FakeDevice(1), blocking=False)
    pipeline.run()
    assert read == [(u, min(u + 2, 9)) for u in range(10)]
    impatient, _ = build(FakeDevice(1), blocking=False)
    assert isinstance(impatient, DevicePipeline)
    bootstrap = impatient.workers[0].collector.bootstrap

    def waits(slab: int) -> None:
        impatient.device.synchronize()  # type: ignore[attr-defined]
        bootstrap(slab)

    impatient.workers[0].collector.bootstrap = waits  # type: ignore[method-assign]
    with pytest.raises(HostWait, match="the host waits for the device"):
        impatient.run()


@pytest.mark.parametrize("free", [None, {"max_policy_lag": 1, "lead": 64, "throttle": False}])
def test_nothing_that_is_enqueued_reads_a_tensor(free: Optional[Dict[str, int]]) -> None:
    """On a GPU it would wait; here it would be a wrong number. All work of all streams, not only the inner loops."""
    device = FakeDevice(1)
    device.guard = lambda work: guarded({"act": work})["act"]  # type: ignore[assignment, return-value]
    ran = run(device, blocking=False, graphs=False, free=free, on_excess="mask" if free else "throttle")
    assert len(ran[1]) == 10 and len(device.log) > 300
    with pytest.raises(HotLoopError):
        device.guard(lambda: print(float(ran[0].sum())))()


def test_the_learner_has_work_before_the_host_is_held_up_by_the_env() -> None:
    """E x M = 24 minibatches and 5 more operations over T = 8 steps of two operations: two to each of these."""
    pipeline, _ = build(FakeDevice(1), learner={"epochs": 6}, graphs=False)
    order: List[str] = []
    run_work, block = FakeStream.run, FakeStream.run_blocking

    def runs(self: FakeStream, work: Any) -> None:
        order.append(self.name)
        run_work(self, work)

    def blocks(self: FakeStream, work: Any) -> None:
        order.append("env")
        block(self, work)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FakeStream, "run", runs)
        patch.setattr(FakeStream, "run_blocking", blocks)
        pipeline.run()
    steps = [i for i, name in enumerate(order) if name == "env"]
    between = [order[a:b].count(LEARNER) for a, b in zip(steps[40:48], steps[41:])]
    assert between[:4] == [4, 4, 4, 4], between


# ------------------------------------------------------------------------------------------------- the free schedule


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    "limits",
    [
        {"max_policy_lag": 1, "lead": 64},
        {"max_policy_lag": 2, "lead": 64, "broadcast_every": 2},
        {"max_policy_lag": 3, "lead": 20},
    ],
)
def test_free_keeps_its_limits(limits: Dict[str, int], workers: int) -> None:
    for seed in SEEDS[workers::3]:
        pipeline, reports = build(FakeDevice(seed), False, free=limits, num_workers=workers)
        pipeline.run()
        assert [report.update for report in reports] == list(range(10))
        assert max(pipeline.ledger.lag_histogram) <= limits["max_policy_lag"]
        totals = pipeline.ledger.totals()
        assert totals["trained"] + totals["masked_dead"] == 10 * 8 * 32


def test_free_with_limit_0_is_sync_bit_for_bit() -> None:
    expected = run(None, lag=0)[0]
    for seed in SEEDS[1::2]:
        assert torch.equal(run(FakeDevice(seed), False, free={"max_policy_lag": 0})[0], expected)


def test_pick_takes_an_older_snapshot_rather_than_wait_for_the_newest() -> None:
    """On a device that is slow to publish, rows are as old as the law allows; on a quick one they are fresher."""

    def mean_lag(seed: int) -> float:
        _, reports = run(FakeDevice(seed), False, free={"max_policy_lag": 3, "lead": 32})
        return sum(report.lag.mean for report in reports[4:])

    assert mean_lag(BIASES.index("lazy")) > mean_lag(BIASES.index("eager"))


@pytest.mark.parametrize("on_excess", ["throttle", "mask", "drop"])
def test_rows_over_the_limit_are_refused_masked_or_dropped(on_excess: str) -> None:
    limits = {"max_policy_lag": 1, "lead": 64, "throttle": False}
    pipeline, reports = build(FakeDevice(BIASES.index("lazy")), False, free=limits, on_excess=on_excess)
    assert isinstance(pipeline, DevicePipeline)
    if on_excess == "throttle":
        with pytest.raises(LagViolation, match=r"would be trained on at a lag of \d where 0\.\.1 is allowed"):
            pipeline.run()
        return
    pipeline.run()
    totals = pipeline.ledger.totals()
    assert max(pipeline.ledger.lag_histogram) <= 1 and len(reports) == 10
    assert totals["masked_lag" if on_excess == "mask" else "dropped_stale"] > 0
    trained = sum(report.metrics["info/kl"] != 0 for report in reports)
    assert int(pipeline.learner.policy.version) == trained <= (10 if on_excess == "mask" else 9)


def test_rows_that_the_host_is_wrong_about_are_masked_by_the_device_and_refused() -> None:
    limits = {"max_policy_lag": 1, "lead": 64, "throttle": False}
    pipeline, _ = build(FakeDevice(BIASES.index("lazy")), False, free=limits)
    assert isinstance(pipeline, DevicePipeline)
    seen: List[int] = []
    load = pipeline.learner.load

    def watched(index: int, lag: int, empty: bool) -> None:
        load(index, lag, empty)
        slab, version = pipeline.learner.slabs_of(index)[0], pipeline.learner.policy.version
        seen.append(int(((version - slab.version_TN) * (slab.status_TN == 0)).max()))

    pipeline.learner.load = watched  # type: ignore[method-assign]
    adopt = pipeline._adopt

    def deluded(worker: int, slab: int, snapshot: int) -> None:
        adopt(worker, slab, snapshot)
        pipeline._acting[worker] = 10**6  # type: ignore[union-attr]

    pipeline._adopt = deluded  # type: ignore[method-assign]
    with pytest.raises(LagViolation, match=r"holds \d+ rows of a greater lag than where|they were masked"):
        pipeline.run()
    assert max(seen) <= 1


# --------------------------------------------------------------------------------------------------------- snapshots


class InHalves(DevicePipeline):
    """Publishes and adopts by two kernels each, between which the device does what it likes."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.published: Dict[int, Tensor] = {}
        self.torn: List[int] = []
        self.adopted = 0

    def _launch(self, key: Any, work: Any, *args: Any, blocking: bool = False) -> None:
        if work not in (self.ring.publish, self.ring.adopt):
            super()._launch(key, work, *args, blocking=blocking)
            return
        policy, slot = args
        source, target = policy.bytes, self.ring.bytes[slot]
        if work == self.ring.adopt:
            source, target = target, source
        else:
            super()._launch(None, lambda: self.published.__setitem__(int(policy.version), source.clone()))
        half = len(source) // 2
        super()._launch(None, lambda: target[:half].copy_(source[:half]))
        super()._launch(None, lambda: target[half:].copy_(source[half:]))
        if work == self.ring.adopt:
            super()._launch(None, self._check, policy, self._snapshot_versions[slot])

    def _check(self, policy: Any, picked: int) -> None:
        self.adopted += 1
        if not torch.equal(policy.bytes, self.published[picked]):
            self.torn.append(int(policy.version))


def torn(seed: int) -> InHalves:
    limits = {"max_policy_lag": 4, "lead": 64}
    many = {"minibatch_size": 8, "minibatches": 32}  # to enqueue an update takes long, so that the worker gets ahead
    pipeline, _ = build(FakeDevice(seed), False, free=limits, num_updates=8, learner=many, make=InHalves)
    assert isinstance(pipeline, InHalves) and isinstance(pipeline.program, Free)
    pipeline.run()
    return pipeline


def test_no_snapshot_is_torn() -> None:
    results = [torn(seed) for seed in SEEDS[4:]]
    assert min(p.adopted for p in results) >= 3 and [p.torn for p in results] == [[]] * 2


def test_without_the_wait_for_readers_snapshots_are_torn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CudaExecutor, "wait_here", lambda self, event: None)
    assert any(torn(seed).torn for seed in SEEDS[4:])


# ------------------------------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(("lag", "workers"), [(0, 1), (1, 2)])
def test_a_checkpoint_of_a_settled_update_continues_bit_for_bit_on_any_executor(lag: int, workers: int) -> None:
    expected = run(None, lag=lag, num_workers=workers)[0]
    pipelines: List[Pipeline] = []
    for seed in SEEDS[lag::3]:
        saved: List[Dict[str, Any]] = []

        def save(report: UpdateReport, saved: List[Dict[str, Any]] = saved) -> None:
            assert report.settled == (report.update in (4, 9))
            if report.update == 4:
                saved.append(pipelines[-1].state_dict(report.update))

        first, _ = build(FakeDevice(seed), False, lag=lag, num_workers=workers, on_boundary=save)
        pipelines.append(first)
        first._settle = lambda update: update == 4
        first.run()
        assert torch.equal(weights(first), expected)
        for other in (None, FakeDevice(seed + 1)):
            resumed, reports = build(other, False, lag=lag, num_workers=workers)
            resumed.load_state_dict(saved[0])
            resumed.run()
            assert torch.equal(weights(resumed), expected)
            assert [report.update for report in reports] == [5, 6, 7, 8, 9]
            assert resumed.ledger.totals() == first.ledger.totals()


def test_stopping_reports_all_that_was_enqueued_and_drops_the_rest() -> None:
    seen: List[int] = []

    def stop(report: UpdateReport) -> None:
        seen.append(report.update)
        if report.update == 3:
            pipeline.stop()

    pipeline, _ = build(FakeDevice(1), False, on_boundary=stop)
    pipeline.run()
    assert seen == [0, 1, 2, 3, 4, 5]  # 4 and 5 were enqueued when 3 was read
    assert pipeline.ledger.totals()["dropped_shutdown"] > 0


# ------------------------------------------------------------------------------------------------------- calibration


def test_streams_are_timed_alone_and_results_do_not_change() -> None:
    """Work costs 1 on a policy stream and 2 on the learner's: 8 x (act, step), bootstrap and cut; and 14 of its own."""
    expected = run(None, num_updates=12)[0]
    for seed in SEEDS[1::2]:
        device = FakeDevice(seed, cost=lambda stream: 2.0 if stream == LEARNER else 1.0)
        pipeline, _ = build(device, False, num_updates=12, graphs=False, make=DevicePipeline)
        pipeline.run()
        assert isinstance(pipeline, DevicePipeline) and torch.equal(weights(pipeline), expected)
        policy, learner = pipeline._cuda.solo_seconds() or (0.0, 0.0)
        assert [s.name for s in device.streams[-3:] if s.urgent] == [LEARNER]  # it takes longer, and goes first now
        assert policy == pytest.approx(8 * 2 + 3, abs=0.5) and learner == 2.0 * (3 + 8 + 2), BIASES[seed]
