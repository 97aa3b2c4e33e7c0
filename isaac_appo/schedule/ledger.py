"""The ledger: which version collected what, what became of every row, and the law on lag.

It imports no torch: it counts rows, and it is told versions that were *recorded in the slab*, not the scheduler's word.
Two laws hold at every moment, over all ``T x N`` rows:

- conservation: ``collected = trained + masked{dead, lag, nan} + dropped{stale, calibration, shutdown} + queued +
  in flight``
- lag: no row is trained at version ``u`` whose ``u - version(row)`` exceeds ``max_lag``.
"""

from __future__ import annotations

import threading
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

from isaac_appo.rollout.facts import SlabFacts

MASKED = ("dead", "nan", "lag")
DROPPED = ("stale", "calibration", "shutdown")
Key = Tuple[int, int]
"""(slab index, worker)."""


class LedgerError(RuntimeError):
    """A slab was used out of turn, or rows were lost or counted twice: a defect of the schedule."""


class LagViolation(LedgerError):  # noqa: N818 (a violation of the law)
    """A row older than the limit was about to reach a gradient."""


class LagReport(NamedTuple):
    """Lag of the live rows of one update, in updates."""

    mean: float
    max: int
    min: int
    histogram: Dict[int, int]
    """Lag -> live rows."""

    @classmethod
    def of(cls, version: int, facts: SlabFacts) -> LagReport:
        """The lag of rows that are trained on at ``version``; zeros if none is live."""
        if not facts.live:
            return cls(0.0, 0, 0, {})
        histogram = {version - v: rows for v, rows in sorted(facts.versions.items(), reverse=True)}
        mean = sum(lag * rows for lag, rows in histogram.items()) / facts.live
        return cls(mean, max(histogram), min(histogram), histogram)


class Ledger:
    """Accounts of all slabs of one run. Safe to call from several threads.

    Args:
        rows_per_slab: ``T x N`` of each worker's slabs.
        max_lag: the largest lag that may be trained on, in updates.
    """

    def __init__(self, rows_per_slab: Sequence[int], max_lag: int) -> None:
        self.rows_per_slab = list(rows_per_slab)
        self.max_lag = max_lag
        self.collected = 0
        self.trained = 0
        self.empty_updates = 0
        self.lag_histogram: Dict[int, int] = {}
        """Lag -> rows trained on at that lag, over the whole run."""
        self.masked: Dict[str, int] = dict.fromkeys(MASKED, 0)
        self.dropped: Dict[str, int] = dict.fromkeys(DROPPED, 0)
        self._in_flight: Dict[Key, int] = {}
        self._queued: Dict[Key, int] = {}
        self._lock = threading.Lock()

    @property
    def rows(self) -> int:
        """Rows that one update consumes: a slab of every worker."""
        return sum(self.rows_per_slab)

    def begin(self, slab: int, worker: int = 0) -> None:
        """A worker starts slab ``slab``: its rows are in flight."""
        with self._lock:
            if (slab, worker) in self._in_flight or (slab, worker) in self._queued:
                raise LedgerError(f"slab {slab} of worker {worker} was begun twice")
            self._in_flight[slab, worker] = self.rows_per_slab[worker]
            self.collected += self.rows_per_slab[worker]

    def finish(self, slab: int, worker: int = 0) -> None:
        """A worker hands slab ``slab`` over: its rows are queued."""
        with self._lock:
            self._queued[slab, worker] = self._take(self._in_flight, (slab, worker), "finished")

    def train(self, slab: int, version: int, facts: SlabFacts) -> LagReport:
        """Train on slab ``slab`` of every worker at ``version``; :class:`LagViolation` comes before any gradient."""
        with self._lock:
            if facts.rows != self.rows:
                raise LedgerError(f"slab {slab} has {facts.rows} rows where the ledger expects {self.rows}")
            report = LagReport.of(version, facts)
            if report.max > self.max_lag or report.min < 0:
                raise LagViolation(
                    f"slab {slab} would be trained on at version {version} with versions "
                    f"{version - report.max}..{version - report.min}: lag {report.min}..{report.max} "
                    f"where 0..{self.max_lag} is allowed"
                )
            for worker in range(len(self.rows_per_slab)):
                self._require(self._queued, (slab, worker), "trained on")
            for worker in range(len(self.rows_per_slab)):
                del self._queued[slab, worker]
            self._book(facts, report)
            return report

    def drop(self, slab: int, cause: str) -> None:
        """Give slab ``slab`` of every worker up for one of ``DROPPED``, queued or in flight."""
        with self._lock:
            keys = [key for key in (*self._queued, *self._in_flight) if key[0] == slab]
            if not keys:
                raise LedgerError(f"slab {slab} was dropped ({cause}) but is neither queued nor in flight")
            for key in keys:
                where = self._queued if key in self._queued else self._in_flight
                self.dropped[cause] += where.pop(key)

    def drop_all(self, cause: str) -> None:
        """Give up every slab that is queued or in flight."""
        for slab in sorted({slab for slab, _ in (*self._queued, *self._in_flight)}):
            self.drop(slab, cause)

    def check_consumed(self, slabs: int) -> None:
        """Raise :class:`LedgerError` unless exactly ``slabs`` slabs of every worker have been trained on or dropped."""
        t = self.totals()
        consumed = sum(rows for name, rows in t.items() if name not in ("collected", "queued", "in_flight"))
        if consumed != slabs * self.rows:
            raise LedgerError(f"{consumed} rows were consumed where {slabs} slabs hold {slabs * self.rows}: {t}")

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
        """Accounts without the slabs in flight: a checkpoint collects those again."""
        with self._lock:
            queued: List[List[int]] = [[*key, rows] for key, rows in self._queued.items()]
            return {
                "collected": self.collected - sum(self._in_flight.values()),
                "trained": self.trained,
                "empty_updates": self.empty_updates,
                "lag_histogram": dict(self.lag_histogram),
                "masked": dict(self.masked),
                "dropped": dict(self.dropped),
                "queued": queued,
            }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from saved accounts."""
        with self._lock:
            self.collected, self.trained = int(state["collected"]), int(state["trained"])
            self.empty_updates = int(state["empty_updates"])
            self.lag_histogram = dict(state["lag_histogram"])
            self.masked, self.dropped = dict(state["masked"]), dict(state["dropped"])
            self._queued = {(int(slab), int(worker)): int(rows) for slab, worker, rows in state["queued"]}
            self._in_flight = {}

    def _book(self, facts: SlabFacts, report: LagReport) -> None:
        self.trained += facts.live
        self.empty_updates += int(facts.live == 0)
        for cause in MASKED:
            self.masked[cause] += getattr(facts, cause)
        for lag, rows in report.histogram.items():
            self.lag_histogram[lag] = self.lag_histogram.get(lag, 0) + rows

    def _take(self, where: Dict[Key, int], key: Key, what: str) -> int:
        self._require(where, key, what)
        return where.pop(key)

    def _require(self, where: Dict[Key, int], key: Key, what: str) -> None:
        if key not in where:
            raise LedgerError(
                f"slab {key[0]} of worker {key[1]} was {what} out of turn "
                f"(in flight {list(self._in_flight)}, queued {list(self._queued)})"
            )
