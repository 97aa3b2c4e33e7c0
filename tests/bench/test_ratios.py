"""S, O, H, R and the bound from times that are easy to compute by hand."""

from __future__ import annotations

import pytest

from isaac_appo.bench.ratios import Spread, bound, overlap, overlaps, paired


def test_overlap_by_hand() -> None:
    found = overlap(collect_s=3.0, learn_s=4.0, update_s=5.0)
    assert pytest.approx(7 / 5) == found.S and pytest.approx(4 / 5) == found.O and pytest.approx(2 / 3) == found.H


@pytest.mark.parametrize(
    ("update", "expected"), [(4.0, (7 / 4, 1.0, 1.0)), (7.0, (1.0, 4 / 7, 0.0)), (8.5, (7 / 8.5, 4 / 8.5, -0.5))]
)
def test_all_hidden_nothing_hidden_and_a_loss(update: float, expected: tuple[float, ...]) -> None:
    assert overlap(3.0, 4.0, update) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("arguments", "seconds", "by"),
    [
        ((3.0, 4.0, 2), 4.0, "learn"),
        ((4.5, 4.0, 2), 4.5, "collect"),
        ((3.0, 4.0, 1), 7.0, "cores"),
        ((3.0, 4.0, 2, 2, 1), 5.0, "cores"),
        ((3.0, 4.0, 2, 1, 2), 5.5, "cores"),
        ((3.0, 4.0, 3, 2, 1), 4.0, "learn"),
    ],
)
def test_the_bound_is_the_longest_of_three(arguments: tuple[float, ...], seconds: float, by: str) -> None:
    found = bound(*arguments)  # type: ignore[arg-type]
    assert found == (pytest.approx(seconds), by)


BLOCKS = {"c": {0: 3.0, 1: 3.0, 2: 2.0}, "l": {0: 4.0, 2: 4.0}, "a": {0: 5.0, 1: 9.0, 2: 4.0}}


def test_ratios_are_taken_round_by_round_where_all_were_accepted() -> None:
    found = overlaps(BLOCKS, "c", "l", "a")
    assert found["S"] == pytest.approx([7 / 5, 6 / 4]) and found["O"] == pytest.approx([4 / 5, 1.0])
    assert found["H"] == pytest.approx([2 / 3, 1.0])
    rate = Spread.of(paired(BLOCKS, ("c", "a"), lambda sim, train: sim / train))
    assert rate == (pytest.approx(0.5), pytest.approx(1 / 3), pytest.approx(0.6), 3)


def test_no_common_round_gives_nothing() -> None:
    assert paired({"c": {0: 1.0}, "a": {1: 1.0}}, ("c", "a"), lambda c, a: c / a) == []
    assert paired(BLOCKS, ("c", "missing"), lambda c, a: c / a) == []
