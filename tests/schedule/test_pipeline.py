"""The pipeline as a whole: accounts, guards, memory, persistence of its tensors."""

from __future__ import annotations

import gc
from typing import Any, List

import psutil
import pytest
import torch

from isaac_appo.kernels import wp
from isaac_appo.rollout.slab import NAN
from isaac_appo.schedule.pipeline import TrainingDiverged, UpdateReport
from tests.helpers import cartpole_pipeline


def test_every_row_is_accounted_for_at_every_boundary() -> None:
    reports: List[UpdateReport] = []

    def check(report: UpdateReport) -> None:
        pipeline.ledger.check()
        reports.append(report)

    pipeline = cartpole_pipeline(check, executor="threads", num_updates=15)
    pipeline.run()
    totals = pipeline.ledger.totals()
    assert totals["collected"] == 16 * 8 * 32 and totals["dropped_calibration"] == 8 * 32
    assert totals["trained"] + totals["masked_dead"] == 15 * 8 * 32 and totals["masked_dead"] > 100
    assert [report.update for report in reports] == list(range(15))


def test_dead_rows_are_the_rows_after_an_episode_ended() -> None:
    episodes: List[Any] = []
    pipeline = cartpole_pipeline(lambda report: episodes.extend(report.episodes), lag=0, num_updates=12)
    pipeline.run()
    assert all(length <= 20 for _, length in episodes)
    dead = pipeline.ledger.masked["dead"]
    # an episode that ended in the last row has its dead row still to come; those of the calibration slab count none
    assert abs(dead - len(episodes)) <= 32 and len(episodes) > 150


def test_rewards_are_the_envs_own_without_any_bootstrap() -> None:
    episodes: List[Any] = []
    pipeline = cartpole_pipeline(lambda report: episodes.extend(report.episodes), num_updates=12)
    pipeline.run()
    assert all(total <= length for total, length in episodes)  # Cartpole pays at most 1 a step
    assert max(total for total, _ in episodes) > 15


def test_broken_physics_in_too_many_envs_stops_the_run() -> None:
    pipeline = cartpole_pipeline(executor="threads", max_nan_fraction=0.05)
    finish = pipeline._take_cut

    def breaking(worker: int, next_slab: int) -> None:
        if next_slab == 3:
            pipeline.learner.slabs_of(2)[0].status_TN[:, :4] = NAN
        finish(worker, next_slab)

    pipeline._take_cut = breaking  # type: ignore[method-assign]
    with pytest.raises(TrainingDiverged, match=r"32 of 256 rows .* allows 13\. Raise task.sim.substeps"):
        pipeline.run()


def test_gradients_that_stay_non_finite_stop_the_run_and_leave_the_weights() -> None:
    pipeline = cartpole_pipeline(num_updates=10)
    targets = pipeline.learner.targets

    def spoil(index: int) -> None:
        targets(index)
        if index >= 2:
            pipeline.learner.batch.advantages.fill_(float("nan"))

    pipeline.learner.targets = spoil  # type: ignore[method-assign]
    with pytest.raises(TrainingDiverged, match="all 8 SGD steps of 3 updates in a row were skipped"):
        pipeline.run()
    assert torch.isfinite(pipeline.learner.policy.parameters).all()


def test_tensors_keep_their_places() -> None:
    pipeline = cartpole_pipeline(executor="threads", num_updates=6)

    def places() -> List[int]:
        slabs = [t.data_ptr() for w in pipeline.workers for slab in w.slabs for t in slab.tensors().values()]
        models = (pipeline.learner.model, pipeline.workers[0].collector.model)
        states = [t.data_ptr() for model in models for t in model.state_dict().values()]
        gradients = [p.grad.data_ptr() for p in pipeline.learner.model.parameters() if p.grad is not None]
        return [*slabs, *states, *gradients]

    before = places()
    pipeline.run()
    assert places() == before and len(before) > 40


def test_memory_is_flat_over_500_iterations_without_the_garbage_collector() -> None:
    process = psutil.Process()
    sizes: List[int] = []
    alive: List[int] = []

    def measure(report: UpdateReport) -> None:
        if report.update % 50 == 49:
            sizes.append(process.memory_info().rss)
            alive.append(sum(type(o) is torch.Tensor for o in gc.get_objects()))

    pipeline = cartpole_pipeline(measure, executor="threads", num_updates=500)
    gc.collect()
    if not wp.config.version.startswith("1.10."):  # it makes a class for each launch, which the collector alone frees
        gc.disable()
    try:
        pipeline.run()
    finally:
        gc.enable()
    assert max(alive[1:]) <= alive[1] + 10  # no tensor outlives its iteration
    assert max(sizes[2:]) - sizes[2] < 4 * 2**20, sizes
