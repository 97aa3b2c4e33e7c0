"""Rounds of blocks in random order, until there are enough accepted ones or the time is up."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass, field
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

from isaac_appo.bench.window import Block

OVERTIME = 1.3
"""How far past its budget a bench goes on when blocks were rejected, as a factor."""


class Plan(NamedTuple):
    """How long to go on.

    Attributes:
        budget_s: a round is begun only if it should end within it.
        min_accepted: blocks of every scenario without which the bench fails.
        max_rounds: rounds at most.
        seed: of the order.
    """

    budget_s: float
    min_accepted: int = 3
    max_rounds: int = 1000
    seed: int = 0


@dataclass
class Record:
    """The blocks of one scenario by round."""

    accepted: Dict[int, Block] = field(default_factory=dict)
    rejected: Dict[int, Tuple[str, Block]] = field(default_factory=dict)


def orders(names: Sequence[str], seed: int) -> Iterator[List[str]]:
    """Every scenario once a round, in an order drawn anew for each round, so that drift hits all alike."""
    generator = random.Random(seed)
    while True:
        order = list(names)
        generator.shuffle(order)
        yield order


def run_rounds(
    blocks: Mapping[str, Callable[[], Block]],
    reject: Callable[[str, Block], str],
    plan: Plan,
    say: Callable[[str], None] = lambda text: None,
    now: Callable[[], float] = time.perf_counter,
) -> Dict[str, Record]:
    """Run rounds of ``blocks``; ``reject(name, block)`` gives the reason not to count one, or nothing."""
    records = {name: Record() for name in blocks}
    began, longest = now(), 0.0
    for number, order in enumerate(orders(list(blocks), plan.seed)):
        elapsed = now() - began
        enough = all(len(record.accepted) >= plan.min_accepted for record in records.values())
        limit = plan.budget_s * (1.0 if enough else OVERTIME)
        if number >= plan.max_rounds or (number > 0 and elapsed + longest > limit):
            break
        for name in order:
            block = blocks[name]()
            reason = reject(name, block)
            if reason:
                records[name].rejected[number] = (reason, block)
            else:
                records[name].accepted[number] = block
            say(f"round {number + 1}, {name}: {1e3 * block.update_s:.1f} ms" + (f", rejected: {reason}" * bool(reason)))
        longest = max(longest, now() - began - elapsed)
    return records


def shortage(records: Mapping[str, Record], plan: Plan) -> str:
    """What a bench lacks, with the last reason; nothing if every scenario has enough accepted blocks."""
    lines = []
    for name, record in records.items():
        if len(record.accepted) < plan.min_accepted:
            last = next(reversed(list(record.rejected.values())))[0] if record.rejected else "the time was up"
            total = len(record.accepted) + len(record.rejected)
            lines.append(f"{name}: {len(record.accepted)} of {total} blocks accepted, last: {last}")
    if not lines:
        return ""
    remedy = "Stop what else runs on this machine, or give more time with --minutes"
    return f"fewer than {plan.min_accepted} accepted blocks:\n  " + "\n  ".join(lines) + f"\n{remedy}"
