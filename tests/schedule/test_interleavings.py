"""The programs under an adversary: no race, no lost row, no lag above the limit, in whatever order things happen."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any, Iterator, List, Set

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from isaac_appo.schedule.executors.virtual import BIASES, VirtualExecutor, adversary
from isaac_appo.schedule.program import Free, Lockstep, Program
from tests.schedule.race_model import RaceModel
from tests.schedule.test_race_model import AHEAD, attempt, describe, free, lockstep, steps_of

INTERLEAVINGS = 10_000
"""Different ones, for each configuration."""
LOCKSTEP = [*(lockstep(lag, num_updates=max(lag + 2, 5 - lag)) for lag in range(4)), lockstep(1, 2, num_updates=3)]
FREE = [
    free(0, lead=2, num_updates=4),
    free(0, lead=4, num_workers=2, num_updates=3),
    free(1, lead=2, num_updates=4),
    free(1, lead=4, num_updates=4),
    free(1, lead=4, broadcast_every=2, num_workers=2, num_updates=3),
    free(2, lead=8, broadcast_every=2, num_updates=4),
    AHEAD,
]
EXCESS = [(free(0, lead=4, throttle=False, num_updates=4), cause) for cause in ("mask", "drop")]


def models(program: Program, on_excess: str = "throttle") -> Iterator[RaceModel]:
    """The models of different interleavings, each run to its end."""
    streams = steps_of(program)
    seen: Set[bytes] = set()
    for seed in range(2 * INTERLEAVINGS):
        model = RaceModel(program, on_excess)
        seen.add(bytes(attempt(model, streams, seed).choices))
        yield model
        if len(seen) == INTERLEAVINGS:
            return
    raise AssertionError(f"{len(seen)} different interleavings in {2 * INTERLEAVINGS} runs")


@pytest.mark.parametrize("program", LOCKSTEP, ids=describe)
def test_lockstep_is_the_same_in_every_interleaving(program: Lockstep) -> None:
    versions = [max(0, slab - program.lag) for slab in range(program.num_updates)]
    history = [(slab, ((v,) * program.horizon,) * program.num_workers) for slab, v in enumerate(versions)]
    for model in models(program):
        assert model.history == history
        assert [r.max for r in model.reports] == [min(i, program.lag) for i in range(program.num_updates)]
    assert model.ledger.totals()["trained"] == program.num_updates * program.num_workers * program.horizon


@pytest.mark.parametrize("program", FREE, ids=describe)
def test_free_keeps_the_law_and_uses_all_it_allows(program: Free) -> None:
    lags: Set[int] = set()
    histories = set()
    for model in models(program):
        lags.update(r.max for r in model.reports)
        histories.add(str(model.history))
    # a lead of one slab and a publication after each leave the worker nothing older to act with
    assert max(lags) == min(program.max_policy_lag, (program.lead - 1) // program.horizon)
    assert (len(histories) > 1) == (program.max_policy_lag > 0 and program.broadcast_every < program.lead // 2)


@pytest.mark.parametrize(("program", "on_excess"), EXCESS, ids=describe)
def test_without_the_throttle_excess_is_masked_or_dropped(program: Free, on_excess: str) -> None:
    lost: Set[int] = set()
    empty: Set[int] = set()
    rows = program.horizon * (program.num_updates + 1)
    for model in models(program, on_excess):
        totals = model.ledger.totals()
        gone = totals["masked_lag"] if on_excess == "mask" else totals["dropped_stale"]
        assert totals["trained"] + gone + totals["dropped_calibration"] == totals["collected"] == rows
        assert max(r.max for r in model.reports) <= program.max_policy_lag
        lost.add(gone)
        empty.add(program.num_updates - model.version)
    assert min(lost) == 0 and len(lost) > 2 and min(empty) == 0 < max(empty)


# -------------------------------------------------------------------------------------------------------- properties

SHAPES = {"horizon": st.integers(1, 4), "epochs": st.integers(1, 3), "minibatches": st.integers(1, 3)}
SHAPES.update(num_updates=st.integers(0, 6), num_workers=st.integers(1, 3))
LOCKSTEPS = st.builds(Lockstep, lag=st.integers(0, 4), **SHAPES)
SEEDS = st.integers(0, 2**32)


@st.composite
def frees(draw: Any, throttle: bool = True) -> Free:
    shape = {name: draw(values) for name, values in SHAPES.items()}
    every = draw(st.integers(1, 3))
    lead = every * shape["horizon"] + draw(st.integers(0, 9))
    lag = draw(st.integers(every - 1, every + 3) if throttle else st.integers(0, 3))
    return Free(**shape, max_policy_lag=lag, lead=lead, broadcast_every=every, throttle=throttle)


@settings(max_examples=200, deadline=None)
@given(LOCKSTEPS, SEEDS, SEEDS)
def test_any_lockstep_conserves_rows_and_is_the_same_twice(program: Lockstep, one: int, other: int) -> None:
    first, second = RaceModel(program), RaceModel(program)
    attempt(first, steps_of(program), one)
    attempt(second, steps_of(program), other)
    assert first.history == second.history and first.reports == second.reports
    lags = [(r.min, r.max) for r in first.reports]
    assert lags == [(min(i, program.lag), min(i, program.lag)) for i in range(program.num_updates)]


@settings(max_examples=300, deadline=None)
@given(frees(), SEEDS)
def test_any_free_run_keeps_its_limits_and_ends(program: Free, seed: int) -> None:
    model = RaceModel(program)
    attempt(model, steps_of(program), seed)
    assert all(r.max <= program.max_policy_lag for r in model.reports)
    totals = model.ledger.totals()
    assert totals["trained"] == program.num_updates * model.ledger.rows == totals["collected"] - model.ledger.rows


@settings(max_examples=200, deadline=None)
@given(frees(throttle=False), st.sampled_from(["mask", "drop"]), SEEDS)
def test_any_run_without_the_throttle_accounts_for_what_it_loses(program: Free, on_excess: str, seed: int) -> None:
    model = RaceModel(program, on_excess)
    attempt(model, steps_of(program), seed)
    totals = model.ledger.totals()
    kept = totals["trained"] + totals["masked_lag"] + totals["dropped_stale"]
    assert kept == program.num_updates * model.ledger.rows
    assert all(r.max <= program.max_policy_lag for r in model.reports)


@settings(max_examples=300, deadline=None)
@given(st.one_of(LOCKSTEPS, frees()), SEEDS, SEEDS, st.integers(0, 2))
def test_a_run_stopped_at_any_boundary_goes_on_without_a_race(
    program: Program, seed: int, other: int, more: int
) -> None:
    if program.num_updates == 0:
        return
    at = random.Random(seed).randrange(program.num_updates)
    restarts: List[RaceModel] = []

    def boundary(update: int) -> None:
        if update == at:
            restarts.append(model.restart(update))
            executor.stop()

    model = RaceModel(program, on_boundary=boundary)
    executor = VirtualExecutor(model.handlers(), model.gates(), pick=adversary(seed, BIASES[seed % 4]))
    executor.run(steps_of(program))
    resumed = restarts[0]
    assert resumed.program.first_update == at + 1 and min(resumed.program.first_slabs) > at
    program = replace(program, num_updates=program.num_updates + more)  # for longer than was planned
    resumed.program = replace(resumed.program, num_updates=program.num_updates)
    attempt(resumed, steps_of(resumed.program), other)
    whole = RaceModel(program)
    attempt(whole, steps_of(program), other)
    if isinstance(program, Lockstep):
        assert model.history + resumed.history == whole.history
    assert [slab for slab, _ in model.history + resumed.history] == list(range(program.num_updates))
    assert resumed.ledger.totals() == whole.ledger.totals()
