"""What a finished slab says about itself: host numbers, so that the ledger can read them without torch."""

from __future__ import annotations

from typing import NamedTuple


class SlabFacts(NamedTuple):
    """Rows of a slab by status, and the versions that its live rows were collected with."""

    live: int
    dead: int
    nan: int
    lag: int
    oldest_version: int
    """Smallest version over live rows (over all rows, if none is live)."""
    newest_version: int
    version_sum: int
    """Sum of the versions of live rows."""

    @property
    def rows(self) -> int:
        """All rows."""
        return self.live + self.dead + self.nan + self.lag
