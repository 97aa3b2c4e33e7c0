"""The ledger: which version collected what, what became of every row, and the law on lag.

It imports no torch: it counts rows, and it is told versions that were *recorded in the slab*, not the scheduler's word.
Two laws hold at every moment, over all ``T x N`` rows:

- conservation: ``collected = trained + masked{dead, lag, nan} + dropped{stale, calibration, shutdown} + queued +
  in flight``
- lag: no row is trained by update ``u`` whose ``u - version(row)`` exceeds ``max_lag``.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, Mapping, NamedTuple

from isaac_appo.rollout.facts import SlabFacts

MASKED = ("dead", "nan", "lag")
DROPPED = ("stale", "calibration", "shutdown")


class LedgerError(RuntimeError):
    """A slab was used out of turn, or rows were lost or counted twice: a defect of the schedule."""


class LagViolation(LedgerError):  # noqa: N818 (a violation of the law)
    """A row older than the limit was about to reach a gradient."""


class LagReport(NamedTuple):
    """Lag of the live rows of one update, in updates."""

    mean: float
    max: int
    min: int


class Ledger:
    """Accounts of all slabs of one run. Safe to call from several threads.

    Args:
        rows_per_slab: ``T x N``.
        max_lag: the largest lag that may be trained on, in updates.
    """

    def __init__(self, rows_per_slab: int, max_lag: int) -> None:
        self.rows_per_slab = rows_per_slab
        self.max_lag = max_lag
        self.collected = 0
        self.trained = 0
        self.empty_updates = 0
        self.masked: Dict[str, int] = dict.fromkeys(MASKED, 0)
        self.dropped: Dict[str, int] = dict.fromkeys(DROPPED, 0)
        self._in_flight: Dict[int, int] = {}
        self._queued: Dict[int, int] = {}
        self._lock = threading.Lock()

    def begin(self, slab: int) -> None:
        """The policy stream starts slab ``slab``: its rows are in flight."""
        with self._lock:
            if slab in self._in_flight or slab in self._queued:
                raise LedgerError(f"slab {slab} was begun twice")
            self._in_flight[slab] = self.rows_per_slab
            self.collected += self.rows_per_slab

    def finish(self, slab: int) -> None:
        """The policy stream hands slab ``slab`` over: its rows are queued."""
        with self._lock:
            self._queued[slab] = self._take(self._in_flight, slab, "finished")

    def train(self, slab: int, update: int, facts: SlabFacts) -> LagReport:
        """The learner trains ``update`` on slab ``slab``; :class:`LagViolation` comes before any gradient."""
        with self._lock:
            if facts.rows != self.rows_per_slab:
                raise LedgerError(f"slab {slab} has {facts.rows} rows where the ledger expects {self.rows_per_slab}")
            report = self._lag(slab, update, facts)
            self._take(self._queued, slab, "trained on")
            self.trained += facts.live
            self.masked["dead"] += facts.dead
            self.masked["nan"] += facts.nan
            self.masked["lag"] += facts.lag
            self.empty_updates += int(facts.live == 0)
            return report

    def drop(self, slab: int, cause: str) -> None:
        """Give slab ``slab`` up for one of ``DROPPED``, queued or in flight."""
        with self._lock:
            rows = self._queued.pop(slab, None) or self._in_flight.pop(slab, None)
            if rows is None:
                raise LedgerError(f"slab {slab} was dropped ({cause}) but is neither queued nor in flight")
            self.dropped[cause] += rows

    def drop_all(self, cause: str) -> None:
        """Give up every slab that is queued or in flight."""
        for slab in [*self._queued, *self._in_flight]:
            self.drop(slab, cause)

    def check(self) -> None:
        """Raise :class:`LedgerError` unless the conservation law holds."""
        t = self.totals()
        parts = sum(rows for name, rows in t.items() if name != "collected")
        if parts != t["collected"]:
            raise LedgerError(f"{t['collected']} rows were collected but {parts} are accounted for: {t}")

    def totals(self) -> Dict[str, int]:
        """Rows by what became of them; everything but ``collected`` adds up to ``collected``."""
        with self._lock:
            return {
                "collected": self.collected,
                "trained": self.trained,
                **{"masked_" + k: v for k, v in self.masked.items()},
                **{"dropped_" + k: v for k, v in self.dropped.items()},
                "queued": sum(self._queued.values()),
                "in_flight": sum(self._in_flight.values()),
            }

    def state_dict(self) -> Dict[str, Any]:
        """Accounts without the slab in flight: a checkpoint collects that one again."""
        with self._lock:
            return {
                "collected": self.collected - sum(self._in_flight.values()),
                "trained": self.trained,
                "empty_updates": self.empty_updates,
                "masked": dict(self.masked),
                "dropped": dict(self.dropped),
                "queued": dict(self._queued),
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from saved accounts."""
        with self._lock:
            self.collected, self.trained = int(state["collected"]), int(state["trained"])
            self.empty_updates = int(state["empty_updates"])
            self.masked, self.dropped = dict(state["masked"]), dict(state["dropped"])
            self._queued, self._in_flight = {int(k): int(v) for k, v in state["queued"].items()}, {}

    def _lag(self, slab: int, update: int, facts: SlabFacts) -> LagReport:
        oldest, newest = update - facts.oldest_version, update - facts.newest_version
        if facts.live and (oldest > self.max_lag or newest < 0):
            raise LagViolation(
                f"update {update} would train on slab {slab} with versions {facts.oldest_version}.."
                f"{facts.newest_version}: lag {newest}..{oldest} where 0..{self.max_lag} is allowed"
            )
        mean = update - facts.version_sum / facts.live if facts.live else 0.0
        return LagReport(mean, oldest, newest)

    def _take(self, where: Dict[int, int], slab: int, what: str) -> int:
        if slab not in where:
            raise LedgerError(
                f"slab {slab} was {what} out of turn (in flight {list(self._in_flight)}, queued {list(self._queued)})"
            )
        return where.pop(slab)
