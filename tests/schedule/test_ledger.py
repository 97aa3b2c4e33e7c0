"""The two laws of the ledger, as properties over arbitrary histories, and the errors it raises."""

from __future__ import annotations

import subprocess
import sys
from typing import List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isaac_appo.rollout.facts import SlabFacts
from isaac_appo.schedule.ledger import DROPPED, LagViolation, Ledger, LedgerError

ROWS = 12


def facts(version: int, dead: int = 0, nan: int = 0) -> SlabFacts:
    live = ROWS - dead - nan
    return SlabFacts(live, dead, nan, 0, {version: live} if live else {})


actions = st.lists(st.sampled_from(["begin", "finish", "train", *DROPPED, "save"]), max_size=60)


@given(actions, st.integers(0, 5), st.integers(0, 5))
def test_rows_are_conserved_whatever_happens(history: List[str], dead: int, nan: int) -> None:
    ledger = Ledger([ROWS], max_lag=3)
    begun, queued, next_slab = [], [], 0  # type: ignore[var-annotated]
    for action in history:
        if action == "begin":
            ledger.begin(next_slab)
            begun.append(next_slab)
            next_slab += 1
        elif action == "finish" and begun:
            queued.append(begun.pop(0))
            ledger.finish(queued[-1])
        elif action == "train" and queued:
            slab = queued.pop(0)
            ledger.train(slab, slab, facts(max(0, slab - 1), dead, nan))
        elif action in DROPPED and (queued or begun):
            ledger.drop((queued or begun).pop(0), action)
        elif action == "save":
            copy = Ledger([ROWS], max_lag=3)
            copy.load_state_dict(ledger.state_dict())
            copy.check()
            assert copy.totals() == {**ledger.totals(), "collected": copy.collected, "in_flight": 0}
        ledger.check()
    assert ledger.totals()["collected"] == next_slab * ROWS
    ledger.drop_all("shutdown")
    ledger.check()
    assert ledger.totals()["queued"] == ledger.totals()["in_flight"] == 0


@given(st.integers(0, 6), st.integers(0, 20), st.integers(0, 20), st.integers(0, 3))
def test_no_row_above_the_limit_is_ever_trained(max_lag: int, update: int, oldest: int, spread: int) -> None:
    ledger = Ledger([ROWS], max_lag)
    ledger.begin(update)
    ledger.finish(update)
    seen = SlabFacts(ROWS, 0, 0, 0, {oldest: ROWS} if not spread else {oldest: 5, oldest + spread: ROWS - 5})
    legal = update - oldest <= max_lag and oldest + spread <= update
    if legal:
        assert ledger.train(update, update, seen).max == update - oldest
    else:
        with pytest.raises(LagViolation, match=f"trained on at version {update} .* where 0..{max_lag} is allowed"):
            ledger.train(update, update, seen)
        assert ledger.trained == 0
    ledger.check()


def test_mean_lag_is_over_live_rows() -> None:
    ledger = Ledger([3], max_lag=2)
    ledger.begin(0)
    ledger.finish(0)
    report = ledger.train(0, 6, SlabFacts(2, 1, 0, 0, {5: 1, 4: 1}))  # versions 5 and 4 at update 6, one row masked
    assert report == (1.5, 2, 1, {1: 1, 2: 1})
    assert ledger.lag_histogram == {1: 1, 2: 1}


def test_use_out_of_turn_is_an_error_that_names_the_slab() -> None:
    ledger = Ledger([ROWS], 1)
    ledger.begin(4)
    with pytest.raises(LedgerError, match="slab 4 of worker 0 was begun twice"):
        ledger.begin(4)
    with pytest.raises(LedgerError, match="slab 4 of worker 0 was trained on out of turn"):
        ledger.train(4, 4, facts(4))
    with pytest.raises(LedgerError, match="slab 5 of worker 0 was finished out of turn"):
        ledger.finish(5)
    with pytest.raises(LedgerError, match="slab 5 was dropped"):
        ledger.drop(5, "stale")
    ledger.finish(4)
    with pytest.raises(LedgerError, match="has 3 rows where the ledger expects 12"):
        ledger.train(4, 4, SlabFacts(3, 0, 0, 0, {4: 3}))


def test_an_update_takes_the_slab_of_every_worker() -> None:
    ledger = Ledger([8, 4], max_lag=1)
    for worker in (1, 0):
        ledger.begin(0, worker)
        ledger.finish(0, worker)
    ledger.train(0, 0, SlabFacts(12, 0, 0, 0, {0: 12}))
    ledger.begin(1, 0)
    ledger.finish(1, 0)
    with pytest.raises(LedgerError, match="slab 1 of worker 1 was trained on out of turn"):
        ledger.train(1, 1, SlabFacts(12, 0, 0, 0, {1: 12}))


def test_facts_of_several_slabs_add_up() -> None:
    parts = [SlabFacts(3, 1, 0, 0, {4: 1, 5: 2}), SlabFacts(2, 0, 1, 1, {5: 2})]
    assert SlabFacts.merge(parts) == SlabFacts(5, 1, 1, 1, {4: 1, 5: 4})


def test_a_lost_row_is_noticed() -> None:
    ledger = Ledger([ROWS], 1)
    ledger.begin(0)
    ledger.collected += 1
    with pytest.raises(LedgerError, match="13 rows were collected but 12 are accounted for"):
        ledger.check()


def test_an_update_without_live_rows_is_counted() -> None:
    ledger = Ledger([ROWS], 1)
    ledger.begin(0)
    ledger.finish(0)
    ledger.train(0, 0, facts(0, dead=ROWS))
    assert ledger.empty_updates == 1 and ledger.trained == 0 and ledger.masked["dead"] == ROWS


def test_the_ledger_and_the_program_import_no_torch() -> None:
    code = "import sys, isaac_appo.schedule.ledger, isaac_appo.schedule.program; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_slab_that_was_skipped_is_noticed() -> None:
    ledger = Ledger([ROWS], 1)
    for slab in (0, 1):
        ledger.begin(slab)
        ledger.finish(slab)
    ledger.train(1, 1, facts(1))
    ledger.check()  # the sums hold: slab 0 is queued
    ledger.check_consumed(1)
    with pytest.raises(LedgerError, match="12 rows were consumed where 2 slabs hold 24"):
        ledger.check_consumed(2)


def test_a_failed_training_takes_nothing() -> None:
    ledger = Ledger([8, 4], max_lag=1)
    ledger.begin(0, 0)
    ledger.finish(0, 0)
    with pytest.raises(LedgerError):
        ledger.train(0, 0, SlabFacts(12, 0, 0, 0, {0: 12}))
    assert ledger.totals()["queued"] == 8
