"""Rounds of blocks in random order, until there are enough accepted ones or the time is up."""

from __future__ import annotations

import random
import time
from typing import Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence

from isaac_appo.bench.window import Block

Records = Dict[str, List[Block]]
"""Scenario -> its blocks, one a round."""


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


def orders(names: Sequence[str], seed: int) -> Iterator[List[str]]:
    """Every scenario once a round, in an order drawn anew for each round, so that drift hits all alike."""
    generator = random.Random(seed)
    while True:
        yield generator.sample(names, len(names))


def accepted(blocks: Sequence[Block]) -> Dict[int, Block]:
    """Round -> block, of those that count."""
    return {number: block for number, block in enumerate(blocks) if not block.rejected}


def run_rounds(
    blocks: Mapping[str, Callable[[], Block]],
    reject: Callable[[str, Block], str],
    plan: Plan,
    say: Callable[[str], None] = lambda text: None,
    now: Callable[[], float] = time.perf_counter,
) -> Records:
    """Run rounds of ``blocks``; ``reject(name, block)`` gives the reason not to count one, or nothing."""
    records: Records = {name: [] for name in blocks}
    began, longest = now(), 0.0
    for number, order in enumerate(orders(list(blocks), plan.seed)):
        elapsed = now() - began
        limit = plan.budget_s * (1.3 if shortage(records, plan) else 1.0)  # overtime for what was rejected
        if number >= plan.max_rounds or (number > 0 and elapsed + longest > limit):
            break
        for name in order:
            block = blocks[name]()
            block = block._replace(rejected=reject(name, block))
            records[name].append(block)
            outcome = f", rejected: {block.rejected}" if block.rejected else ""
            say(f"round {number + 1}, {name}: {1e3 * block.update_s:.1f} ms{outcome}")
        longest = max(longest, now() - began - elapsed)
    return records


def shortage(records: Records, plan: Plan) -> str:
    """What a bench lacks, with the last reason; nothing if every scenario has enough accepted blocks."""
    lines = []
    for name, blocks in records.items():
        count = len(accepted(blocks))
        if count < plan.min_accepted:
            last = next((block.rejected for block in reversed(blocks) if block.rejected), "the time was up")
            lines.append(f"{name}: {count} of {len(blocks)} blocks accepted, last: {last}")
    if not lines:
        return ""
    remedy = "Stop what else runs on this machine, or give more time with --minutes"
    return f"fewer than {plan.min_accepted} accepted blocks:\n  " + "\n  ".join(lines) + f"\n{remedy}"
