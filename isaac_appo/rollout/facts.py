"""What a finished slab says about itself: host numbers, so that the ledger can read them without torch."""

from __future__ import annotations

from typing import Dict, Iterable, NamedTuple, Sequence


class SlabFacts(NamedTuple):
    """Rows by status, and live rows by the version that collected them."""

    live: int
    dead: int
    nan: int
    lag: int
    versions: Dict[int, int]
    """Version -> live rows."""

    @property
    def rows(self) -> int:
        """All rows."""
        return self.live + self.dead + self.nan + self.lag

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> SlabFacts:
        """The facts of a slab from ``(live, dead, nan, lag, version)`` of each of its rows."""
        versions: Dict[int, int] = {}
        for live, _, _, _, version in rows:
            if live:
                versions[version] = versions.get(version, 0) + live
        live, dead, nan, lag = (sum(row[k] for row in rows) for k in range(4))
        return cls(live, dead, nan, lag, versions)

    @classmethod
    def merge(cls, parts: Iterable[SlabFacts]) -> SlabFacts:
        """The facts of several slabs together."""
        live = dead = nan = lag = 0
        versions: Dict[int, int] = {}
        for part in parts:
            live, dead, nan, lag = live + part.live, dead + part.dead, nan + part.nan, lag + part.lag
            for version, rows in part.versions.items():
                versions[version] = versions.get(version, 0) + rows
        return cls(live, dead, nan, lag, versions)
