"""metrics.csv: one row an update, so that plots need neither a service nor this package."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Any, Iterable

from isaac_appo.report.atomic_file import write_text
from isaac_appo.report.sink import Sink

AXES = ("update", "env_steps", "elapsed_s")


class CsvSink(Sink):
    """Appends rows to `path`; each is on disk (flushed) when `write` returns. Raises OSError.

    Rows of an earlier process with more than `start_update` completed updates are dropped at once, as those updates
    are about to be done again: the file never runs backwards. A half-written last row of a killed process goes too.
    A key that comes up later makes a new column; the earlier rows leave it empty.
    """

    def __init__(self, path: Path, start_update: int = 0) -> None:
        self._path = path
        self._header, rows = _read(path)
        kept = [row for row in rows if _number(row[0]) <= start_update]
        if not kept:
            self._header = list(AXES)
        self._rewrite(kept)

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        row: dict[str, Any] = {"update": update, "env_steps": env_steps, "elapsed_s": f"{elapsed_s:.3f}", **metrics}
        new = sorted(set(row) - set(self._header))
        if new:
            self._file.close()
            rows = _read(self._path)[1]
            self._header += new
            self._rewrite([old + [""] * len(new) for old in rows])
        csv.writer(self._file, lineterminator="\n").writerow([_cell(row.get(key, "")) for key in self._header])
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def _rewrite(self, rows: Iterable[list[str]]) -> None:
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([self._header, *rows])
        write_text(self._path, text.getvalue())
        self._file = open(self._path, "a", encoding="utf-8", newline="")  # noqa: SIM115 (held until close)


def read_columns(path: Path, names: Iterable[str]) -> dict[str, list[float]]:
    """The named columns as floats, row by row; an empty cell or absent column reads NaN. Raises OSError."""
    header, rows = _read(path)
    if not header:
        raise FileNotFoundError(f"{path} is missing or empty: no metrics were logged there.")
    columns = dict(zip(header, zip(*rows)))
    return {name: [_number(cell) for cell in columns.get(name, [""] * len(rows))] for name in names}


def _read(path: Path) -> tuple[list[str], list[list[str]]]:
    """Header and the complete rows below it; ([], []) for a missing or empty file."""
    if not path.is_file():
        return [], []
    text = path.read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text[: text.rfind("\n") + 1])))  # what follows the last newline is half a row
    return (rows[0], [row for row in rows[1:] if len(row) == len(rows[0])]) if rows else ([], [])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return math.nan


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else f"{value:.9g}"
    return value
