"""Order, budget and acceptance of blocks."""

from __future__ import annotations

import itertools
from typing import Callable, Dict, List

from isaac_appo.bench.load import Load
from isaac_appo.bench.rounds import Plan, accepted, orders, run_rounds, shortage
from isaac_appo.bench.window import Block

NAMES = ["a", "b", "c", "d"]
BLOCK = Block(0.1, 5, Load(0.5, 0.5, 0.0), None)


class Clock:
    def __init__(self) -> None:
        self.time = 0.0

    def __call__(self) -> float:
        return self.time


def blocks(clock: Clock, ran: List[str], seconds: float = 1.0) -> Dict[str, Callable[[], Block]]:
    def block_of(name: str) -> Callable[[], Block]:
        def block() -> Block:
            clock.time += seconds
            ran.append(name)
            return BLOCK

        return block

    return {name: block_of(name) for name in NAMES}


def accept(name: str, block: Block) -> str:
    return ""


def test_every_round_has_every_scenario_once_in_an_order_of_its_own() -> None:
    rounds = list(itertools.islice(orders(NAMES, 1), 20))
    assert all(sorted(order) == NAMES for order in rounds)
    assert len({tuple(order) for order in rounds}) > 5
    assert rounds == list(itertools.islice(orders(NAMES, 1), 20))
    assert rounds != list(itertools.islice(orders(NAMES, 2), 20))


def test_blocks_run_interleaved_in_that_order() -> None:
    clock, ran = Clock(), []  # type: Clock, List[str]
    records = run_rounds(blocks(clock, ran), accept, Plan(100.0, max_rounds=3, seed=7), now=clock)
    assert ran == [name for order in itertools.islice(orders(NAMES, 7), 3) for name in order]
    assert all(sorted(accepted(record)) == [0, 1, 2] for record in records.values())


def test_a_round_begins_only_if_it_should_end_within_the_budget() -> None:
    clock, ran = Clock(), []  # type: Clock, List[str]
    run_rounds(blocks(clock, ran), accept, Plan(15.0), now=clock)
    assert len(ran) == 12  # three rounds of 4 s; a fourth would end at 16 s


def test_the_first_round_always_runs_and_rejected_blocks_are_given_overtime() -> None:
    clock, ran = Clock(), []  # type: Clock, List[str]
    run_rounds(blocks(clock, ran), accept, Plan(1.0, min_accepted=1), now=clock)
    assert len(ran) == 4
    ran.clear()
    clock.time = 0.0
    records = run_rounds(blocks(clock, ran), lambda name, block: "load" * (name == "b"), Plan(13.0), now=clock)
    assert len(ran) == 16  # 16 s are within 1.3 times the budget
    assert [block.rejected for block in records["b"]] == ["load"] * 4
    assert not accepted(records["b"]) and len(accepted(records["a"])) == 4


def test_a_shortage_names_the_scenario_the_count_and_the_last_reason() -> None:
    good = [BLOCK] * 3
    bad = [BLOCK, BLOCK._replace(rejected="first"), BLOCK._replace(rejected="second")]
    assert shortage({"a": good}, Plan(1.0)) == ""
    text = shortage({"a": good, "b": bad}, Plan(1.0))
    assert "b: 1 of 3 blocks accepted, last: second" in text and "a:" not in text
    assert "fewer than 3" in text and "--minutes" in text
