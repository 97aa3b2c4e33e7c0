"""Whether overlap pays is measured once, and a run that goes synchronous does so at the same slab on every executor."""

from __future__ import annotations

from typing import Any, Dict, List

import pytest
import torch

from isaac_appo.schedule.executors.inline import InlineExecutor
from isaac_appo.schedule.executors.virtual import BIASES, VirtualExecutor, adversary
from isaac_appo.schedule.overlap import WARM_UPDATES, WINDOW, Overlap, OverlapMeter
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.schedule.program import Lockstep
from tests.helpers import cartpole_pipeline, weights
from tests.schedule.fake_device import FakeDevice
from tests.schedule.race_model import RaceModel


@pytest.mark.parametrize(
    ("times", "hidden", "pays"),
    [
        ((3.0, 1.0, 3.0), 1.0, True),
        ((3.0, 1.0, 4.0), 0.0, False),
        ((2.0, 2.0, 3.78), 0.11, True),
        ((1, 1, 3), -1, False),
    ],
)
def test_the_hidden_fraction_decides(times: Any, hidden: float, pays: bool) -> None:
    overlap = Overlap(*times)
    assert overlap.hidden == pytest.approx(hidden) and overlap.pays is pays


def test_it_is_measured_once_over_the_window() -> None:
    program = Lockstep(1, 1, 1, 100, lag=1)
    meter, executor = OverlapMeter(program), InlineExecutor({})
    found: List[int] = []
    for update in range(100):
        executor.cpu_s = {"policy/0": 0.5 * update, "policy/1": 1.5 * update, "learner": 3.0 * update}
        overlap = meter.boundary(update, executor)
        if overlap is not None:
            found.append(update)
            assert overlap[:2] == (1.0, 3.0) and overlap.together_s > 0
    assert found == [program.num_slabs + WARM_UPDATES + WINDOW]


def switched(at: int, lag: int = 2, workers: int = 2, **more: Any) -> Lockstep:
    program = Lockstep(2, 1, 2, 12, workers, lag=lag, **more)
    program.switch.at = at
    return program


def test_slabs_from_the_switch_on_are_collected_with_the_newest_snapshot() -> None:
    program = switched(6)
    assert [program.snapshot_of(slab) for slab in range(10)] == [0, 0, 0, 1, 2, 3, 6, 7, 8, 9]
    for snapshot in range(10):
        readers = [slab for slab in range(20) if program.snapshot_of(slab) <= snapshot]
        assert program.last_reader(snapshot) == max(readers)


@pytest.mark.parametrize("lag", [1, 2, 3])
def test_a_switch_in_the_middle_of_a_run_races_with_nothing(lag: int) -> None:
    for seed in range(100):
        program = switched(7 + lag, lag=lag)
        model = RaceModel(program)
        pick = adversary(seed, BIASES[seed % len(BIASES)])
        executor = VirtualExecutor(model.handlers(), model.gates(), pick=pick)
        executor.run(program.streams())
        model.check_end()
        assert [report.max for report in model.reports][5 + lag :] == [lag, lag] + [0] * (5 - lag)


def go(pipeline: Pipeline) -> Pipeline:
    def decide(report: Any) -> None:
        if report.update == 2:
            assert pipeline.go_synchronous(report.update) == 7

    pipeline._on_boundary = decide
    pipeline.run()
    return pipeline


def test_all_executors_go_synchronous_at_the_same_slab() -> None:
    inline = go(cartpole_pipeline())
    assert inline.ledger.lag_histogram.keys() == {0, 1}
    assert not torch.equal(weights(inline), weights(go_nowhere()))
    assert torch.equal(weights(go(cartpole_pipeline(executor="threads"))), weights(inline))
    for seed in (3, 4):
        device = go(cartpole_pipeline(executor="cuda", device=FakeDevice(seed)))
        assert torch.equal(weights(device), weights(inline))


def go_nowhere() -> Pipeline:
    pipeline = cartpole_pipeline()
    pipeline.run()
    return pipeline


def test_the_decision_is_in_the_checkpoint() -> None:
    saved: List[Dict[str, Any]] = []
    first = cartpole_pipeline()

    def decide(report: Any) -> None:
        if report.update == 2:
            first.go_synchronous(report.update)
        if report.update == 5:
            saved.append(first.state_dict(report.update))

    first._on_boundary = decide
    first.run()
    resumed = cartpole_pipeline()
    resumed.load_state_dict(saved[0])
    resumed.run()
    assert torch.equal(weights(resumed), weights(first))
    other = cartpole_pipeline()
    other.load_state_dict({k: v for k, v in saved[0].items() if k != "synchronous_from"})
    other.run()
    assert not torch.equal(weights(other), weights(first))
