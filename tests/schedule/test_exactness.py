"""Same seed, same weights, bit for bit: across executors, at lag 0, and across a resume."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
import torch

from isaac_appo.schedule.pipeline import Pipeline
from tests.helpers import cartpole_pipeline, weights, with_random_sleeps


def run(**settings: Any) -> Pipeline:
    pipeline = cartpole_pipeline(**settings)
    pipeline.run()
    return pipeline


def test_lag_0_is_sync_on_any_executor() -> None:
    reference = weights(run(lag=0, executor="inline"))
    assert torch.equal(weights(run(lag=0, executor="threads")), reference)
    assert not torch.equal(weights(run(lag=1, executor="inline")), reference)


@pytest.mark.parametrize(("lag", "workers"), [(1, 1), (2, 1), (1, 2)])
def test_lockstep_is_the_same_on_inline_and_threads_with_random_sleeps(lag: int, workers: int) -> None:
    reference = weights(run(lag=lag, executor="inline", num_updates=20, num_workers=workers))
    for sleep_seed in (1, 2):
        threaded = cartpole_pipeline(lag=lag, executor="threads", num_updates=20, num_workers=workers)
        with_random_sleeps(threaded, sleep_seed)
        threaded.run()
        assert torch.equal(weights(threaded), reference)


def test_another_seed_differs() -> None:
    assert not torch.equal(weights(run(seed=3)), weights(run(seed=4)))


@pytest.mark.parametrize("advantage", ["gae", "vtrace"])
@pytest.mark.parametrize("loss", ["decoupled", "behaviour"])
def test_settings_change_nothing_at_lag_0_and_something_at_lag_1(advantage: str, loss: str) -> None:
    plain = {lag: weights(run(lag=lag)) for lag in (0, 1)}
    targets = cartpole_pipeline().learner.settings.targets._replace(use_vtrace=advantage == "vtrace")
    changes = {"targets": targets, "behaviour_anchor": loss == "behaviour"}
    assert torch.equal(weights(run(lag=0, learner=changes)), plain[0])
    if changes != {"targets": targets._replace(use_vtrace=False), "behaviour_anchor": False}:
        assert not torch.equal(weights(run(lag=1, learner=changes)), plain[1])


@pytest.mark.parametrize("executor", ["inline", "threads"])
@pytest.mark.parametrize(("lag", "workers"), [(0, 1), (1, 1), (2, 1), (1, 3)])
def test_10_updates_equal_5_and_resume_and_5(lag: int, workers: int, executor: str) -> None:
    straight = run(lag=lag, executor=executor, num_workers=workers)
    saved: List[Dict[str, Any]] = []

    def save(report: Any) -> None:
        if report.update == 4:
            saved.append(first.state_dict(report.update))

    first = cartpole_pipeline(save, lag=lag, executor=executor, num_workers=workers)
    first.run()
    resumed = cartpole_pipeline(lag=lag, executor=executor, num_workers=workers)
    resumed.load_state_dict(saved[0])
    resumed.run()
    assert torch.equal(weights(resumed), weights(straight))
    ours, theirs = resumed.learner.state_dict(), straight.learner.state_dict()
    assert ours["learning_rate"] == theirs["learning_rate"]
    for name, tensor in ours["model"].items():
        assert torch.equal(tensor, theirs["model"][name]), name
    for i, entry in ours["optimizer"]["state"].items():
        assert all(torch.equal(entry[k], theirs["optimizer"]["state"][i][k]) for k in entry)
    for ours_w, theirs_w in zip(resumed.workers, straight.workers):
        assert ours_w.collector.global_step == theirs_w.collector.global_step
    assert resumed.ledger.totals() == straight.ledger.totals()


def test_a_resume_in_a_run_that_was_stopped_drops_the_slab_in_flight_and_collects_it_again() -> None:
    straight = run(executor="threads")
    saved: List[Dict[str, Any]] = []

    def stop(report: Any) -> None:
        if report.update == 4:
            saved.append(first.state_dict(report.update))
            first.stop()

    first = cartpole_pipeline(stop, executor="threads")
    first.run()
    assert first.ledger.trained < straight.ledger.trained
    resumed = cartpole_pipeline(executor="threads")
    resumed.load_state_dict(saved[0])
    resumed.run()
    assert torch.equal(weights(resumed), weights(straight))


def test_lag_is_what_the_schedule_says_read_from_the_rows() -> None:
    for lag in (0, 1, 3):
        seen: List[int] = []
        run(lag=lag, executor="threads", on_boundary=lambda report, seen=seen: seen.append(report.lag.max))
        assert seen == [min(u, lag) for u in range(10)]
