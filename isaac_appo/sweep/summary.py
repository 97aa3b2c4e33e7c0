"""sweep_summary.csv: a row for each job, rewritten whenever one ends."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path
from typing import Iterable, List, NamedTuple

from isaac_appo.report.atomic_file import write_text
from isaac_appo.report.csv import read_columns
from isaac_appo.sweep.plan import Job


class Row(NamedTuple):
    """One job that has ended."""

    job: int
    overrides: str
    exit_code: int
    run_dir: str
    final_reward: float
    """Mean return of the last episodes of training; NaN if none ended."""
    seconds: float


def row_of(job: Job, exit_code: int, seconds: float) -> Row:
    return Row(job.number, str(job), exit_code, str(job.run_dir), final_reward(job.run_dir), seconds)


def final_reward(run_dir: Path) -> float:
    """The last mean return in metrics.csv, NaN if there is none."""
    try:
        rewards = read_columns(run_dir / "metrics.csv", ["rewards/step"])["rewards/step"]
    except OSError:
        return math.nan
    return next((reward for reward in reversed(rewards) if math.isfinite(reward)), math.nan)


def write_summary(path: Path, rows: Iterable[Row]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(Row._fields)
    for row in sorted(rows):
        reward = "" if math.isnan(row.final_reward) else f"{row.final_reward:.9g}"
        writer.writerow([*row[:4], reward, f"{row.seconds:.1f}"])
    write_text(path, text.getvalue())


def read_summary(path: Path) -> List[Row]:
    """The rows that an earlier start of the sweep wrote; none if it wrote no file."""
    if not path.is_file():
        return []
    with open(path, encoding="utf-8", newline="") as file:
        cells = list(csv.reader(file))[1:]
    return [Row(int(j), text, int(code), run, float(r or "nan"), float(s)) for j, text, code, run, r, s in cells]
