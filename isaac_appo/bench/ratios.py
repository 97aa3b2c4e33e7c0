"""What the times of the phases say about overlap, and what no schedule can beat."""

from __future__ import annotations

import statistics
from typing import Callable, Dict, List, Mapping, NamedTuple, Sequence, Tuple


class Overlap(NamedTuple):
    """Overlap of collecting and learning.

    Attributes:
        S: (Tc + Tl) / Ta, speed against taking turns at the same threads. 2 at best.
        O: max(Tc, Tl) / Ta, share of the ideal. It flatters where one phase is short.
        H: (Tc + Tl - Ta) / min(Tc, Tl), share of the shorter phase that is hidden behind the longer.
    """

    S: float
    O: float  # noqa: E741 (the symbol of the formula)
    H: float


def overlap(collect_s: float, learn_s: float, update_s: float) -> Overlap:
    """From solo collect time Tc, solo learn time Tl and time per update Ta, in seconds per update."""
    total = collect_s + learn_s
    return Overlap(total / update_s, max(collect_s, learn_s) / update_s, (total - update_s) / min(collect_s, learn_s))


def bound(
    collect_s: float, learn_s: float, cores: int, policy_threads: int = 1, learner_threads: int = 1
) -> Tuple[float, str]:
    """The least Ta of two overlapping phases, and what sets it: the longer one, or both spread over ``cores``."""
    work = (collect_s * policy_threads + learn_s * learner_threads) / cores
    return max((collect_s, "collect"), (learn_s, "learn"), (work, "cores"), key=lambda term: term[0])


class Spread(NamedTuple):
    """Median and extremes of ``n`` values."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Of at least one value."""
        return cls(statistics.median(values), min(values), max(values), len(values))


def paired(
    blocks: Mapping[str, Mapping[int, float]], names: Sequence[str], formula: Callable[..., float]
) -> List[float]:
    """``formula`` of the values of ``names``, round by round, over the rounds in which all of them were accepted.

    ``blocks``: name -> round -> value.
    """
    rounds = set.intersection(*(set(blocks.get(name, {})) for name in names))
    return [formula(*(blocks[name][r] for name in names)) for r in sorted(rounds)]


def overlaps(
    blocks: Mapping[str, Mapping[int, float]], collect: str, learn: str, update: str
) -> Dict[str, List[float]]:
    """S, O and H of the scenario ``update``, round by round, from seconds per update."""
    names = (collect, learn, update)
    return {key: paired(blocks, names, lambda *s, i=i: overlap(*s)[i]) for i, key in enumerate(Overlap._fields)}
