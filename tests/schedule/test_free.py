"""The free schedule on real streams: limits hold by the versions recorded in the rows, nothing is torn or lost."""

from __future__ import annotations

import random
import time
from typing import Any, Callable, Dict, List, Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.rollout.slab import DEAD, LAG, LIVE
from isaac_appo.schedule.ledger import LagViolation
from isaac_appo.schedule.pipeline import Pipeline, TrainingDiverged, UpdateReport
from isaac_appo.schedule.program import Free
from tests.helpers import cartpole_pipeline, weights, with_random_sleeps


def free(slow: str = "", factor: float = 0.004, **settings: Any) -> Tuple[Pipeline, List[UpdateReport]]:
    """A pipeline of 30 slabs on threads whose ``learner`` or ``collector`` is slowed; boundaries check the ledger."""
    reports: List[UpdateReport] = []

    def on_boundary(report: UpdateReport) -> None:
        pipeline.ledger.check()
        reports.append(report)

    limits = settings.pop("free", {})
    pipeline = cartpole_pipeline(on_boundary, free=limits, **{"executor": "threads", "num_updates": 30, **settings})
    if slow == "learner":
        delay(pipeline.learner, "minibatch", factor)
    elif slow == "collector":
        for worker in pipeline.workers:
            delay(worker.collector, "step", factor)
    return pipeline, reports


def delay(owner: Any, name: str, seconds: float) -> None:
    original: Callable[..., None] = getattr(owner, name)

    def slowed(*args: Any) -> None:
        time.sleep(seconds)
        original(*args)

    setattr(owner, name, slowed)


@pytest.mark.parametrize("slow", ["", "learner", "collector"])
@pytest.mark.parametrize(
    "limits",
    [
        {"max_policy_lag": 0, "lead": 16},
        {"max_policy_lag": 1, "lead": 64},
        {"max_policy_lag": 2, "lead": 64, "broadcast_every": 2},
        {"max_policy_lag": 3, "lead": 48},
    ],
)
@pytest.mark.parametrize("workers", [1, 2])
def test_no_row_above_the_limit_is_trained(limits: Dict[str, int], slow: str, workers: int) -> None:
    pipeline, reports = free(slow, num_workers=workers, free=limits)
    pipeline.run()
    assert [report.update for report in reports] == list(range(30))
    assert max(pipeline.ledger.lag_histogram) <= limits["max_policy_lag"]
    totals = pipeline.ledger.totals()
    assert totals["trained"] + totals["masked_dead"] == 30 * 8 * 32 and totals["dropped_stale"] == 0
    if slow == "learner" and limits["max_policy_lag"] > 0:
        assert max(pipeline.ledger.lag_histogram) == limits["max_policy_lag"]  # the limit is used, not only kept


def test_without_the_law_the_lag_exceeds_the_limit_and_the_ledger_refuses() -> None:
    limits = {"max_policy_lag": 1, "lead": 64, "throttle": False}
    pipeline, _ = free("learner", free=limits)
    with pytest.raises(LagViolation, match=r"where 0\.\.1 is allowed"):
        pipeline.run()


def test_limit_0_is_sync_bit_for_bit() -> None:
    sync = cartpole_pipeline(lag=0, num_updates=12)
    sync.run()
    for executor in ("inline", "threads"):
        pipeline = cartpole_pipeline(free={"max_policy_lag": 0}, num_updates=12, executor=executor)
        pipeline.run()
        assert torch.equal(weights(pipeline), weights(sync))


@pytest.mark.parametrize("on_excess", ["mask", "drop"])
def test_rows_over_the_limit_are_masked_or_dropped_and_counted(on_excess: str) -> None:
    limits = {"max_policy_lag": 1, "lead": 64, "throttle": False}
    pipeline, reports = free("learner", free=limits, on_excess=on_excess, num_updates=40)
    seen: List[Tuple[int, int]] = []
    load = pipeline.learner.load

    def watched(index: int, lag: int, empty: bool) -> None:
        load(index, lag, empty)
        slab, version = pipeline.learner.slabs_of(index)[0], pipeline.learner.version
        live = slab.status_TN == LIVE
        if not empty:
            seen.append((int((version - slab.version_TN[live]).max()), int((slab.status_TN == LAG).sum())))

    pipeline.learner.load = watched  # type: ignore[method-assign]
    pipeline.run()
    totals, rows = pipeline.ledger.totals(), 40 * 8 * 32
    assert max(lag for lag, _ in seen) <= 1 and max(pipeline.ledger.lag_histogram) <= 1
    if on_excess == "mask":
        assert totals["masked_lag"] >= sum(masked for _, masked in seen) and totals["masked_lag"] > 0
        assert totals["dropped_stale"] == 0
        assert totals["trained"] + totals["masked_dead"] + totals["masked_lag"] == rows
    else:
        assert totals["dropped_stale"] % 256 == 0 and totals["dropped_stale"] > 0 and totals["masked_lag"] == 0
        assert totals["trained"] + totals["masked_dead"] + totals["dropped_stale"] == rows
    # a slab that trains nothing makes no version
    assert pipeline.learner.version == len(seen) == sum(report.metrics["info/kl"] != 0 for report in reports)


def test_a_schedule_that_starves_the_learner_stops_with_the_remedy() -> None:
    limits = {"max_policy_lag": 0, "lead": 64, "throttle": False}
    pipeline, _ = free(free=limits, on_excess="drop", num_updates=200)
    pipeline.learner.version = 5  # as if nothing that is collected could ever be new enough
    calibrate = pipeline.learner.calibrate

    def far_ahead(index: int) -> None:
        calibrate(index)
        pipeline.learner.version = 5

    pipeline.learner.calibrate = far_ahead  # type: ignore[method-assign]
    with pytest.raises(TrainingDiverged, match=r"20 slabs in a row had no row to train on.*max_policy_lag"):
        pipeline.run()


def test_the_lead_is_never_exceeded() -> None:
    pipeline, _ = free("learner", free={"max_policy_lag": 8, "lead": 20, "broadcast_every": 2})
    assert isinstance(pipeline.program, Free) and pipeline.program.num_slabs == 3
    ahead: List[int] = []
    collector = pipeline.workers[0].collector
    step = collector.step

    def watched(slab: int, t: int) -> None:
        if slab >= 0:
            assert pipeline.executor is not None
            consumed = pipeline.executor.recorded.get("free", -1) + 1
            ahead.append(slab * 8 + t - consumed // 2 * 2 * 8)
        step(slab, t)

    collector.step = watched  # type: ignore[method-assign]
    pipeline.run()
    assert max(ahead) == 19  # one step short of the budget of 20, and all of it is used


def test_resuming_keeps_the_accounts_and_the_limits() -> None:
    saved: List[Dict[str, Any]] = []

    def save(report: UpdateReport) -> None:
        if report.update == 9:
            saved.append(first.state_dict(report.update))
            first.stop()

    limits = {"max_policy_lag": 2, "lead": 32}
    shape = {"free": limits, "num_workers": 2, "executor": "threads", "num_updates": 20}
    first = cartpole_pipeline(save, **shape)
    with_random_sleeps(first, 1)
    first.run()
    resumed, reports = free(**shape)
    resumed.load_state_dict(saved[0])
    resumed.run()
    assert [report.update for report in reports] == list(range(10, 20)) and resumed.learner.version == 20
    totals = resumed.ledger.totals()
    assert totals["collected"] == 21 * 8 * 32 and totals["dropped_shutdown"] == 0
    assert max(resumed.ledger.lag_histogram) <= 2


class Slowly:
    """Publishes and adopts in two halves; now and then the reader sleeps between them, at a random phase.

    A sleep outlasts several updates, which the learner makes from slabs that are queued.
    """

    def __init__(self, pipeline: Pipeline, seed: int) -> None:
        self.pipeline, self.random = pipeline, random.Random(seed)
        self.published: Dict[int, Tensor] = {}
        self.torn: List[int] = []
        self.adopted = 0
        ring = pipeline.ring
        ring.publish = self.publish  # type: ignore[method-assign]
        ring.adopt = self.adopt  # type: ignore[method-assign]

    @staticmethod
    def copy(target: Tensor, source: Tensor, pause_s: float) -> None:
        half = len(target) // 2
        target[:half].copy_(source[:half])
        time.sleep(pause_s)
        target[half:].copy_(source[half:])

    def publish(self, source: Any, slot: int) -> None:
        self.published[int(source.version)] = source.bytes.clone()
        self.copy(self.pipeline.ring.bytes[slot], source.bytes, 0.0005)

    def adopt(self, target: Any, slot: int) -> None:
        pause_s = self.random.random() * 0.1 if self.random.random() < 0.15 else 0.0
        self.copy(target.bytes, self.pipeline.ring.bytes[slot], pause_s)
        self.adopted += 1
        if not torch.equal(target.bytes, self.published[int(target.version)]):
            self.torn.append(int(target.version))


@pytest.mark.parametrize("workers", [1, 3])
def test_no_snapshot_is_torn_at_random_phases(workers: int) -> None:
    pipeline, _ = free(free={"max_policy_lag": 4, "lead": 64}, num_workers=workers, num_updates=60)
    slowly = Slowly(pipeline, seed=workers)
    pipeline.run()
    assert slowly.adopted > 40 and slowly.torn == []


def test_without_the_wait_for_readers_snapshots_are_torn() -> None:
    for seed in range(10):
        pipeline, _ = free(free={"max_policy_lag": 4, "lead": 64}, num_workers=3, num_updates=60)
        pipeline._is_unread = lambda snapshot: True  # type: ignore[method-assign]
        slowly = Slowly(pipeline, seed)
        pipeline.run()
        if slowly.torn:
            return
    pytest.fail("no torn snapshot in 10 runs: the test above would not see one")


def test_dead_rows_are_not_counted_as_lag() -> None:
    pipeline, _ = free("learner", free={"max_policy_lag": 1, "lead": 64, "throttle": False}, on_excess="mask")
    pipeline.run()
    for slab in pipeline.workers[0].slabs:
        assert not ((slab.status_TN == DEAD) & (slab.status_TN == LAG)).any()
    assert pipeline.ledger.masked["dead"] > 0 < pipeline.ledger.masked["lag"]
