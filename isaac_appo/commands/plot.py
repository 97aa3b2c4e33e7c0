"""``isaac-appo plot RUNS``: mean and spread over seeds of finished or running trainings, as a picture and a table."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import List


def main(argv: List[str]) -> int:
    """Draw the runs and print their table; 2 if there is nothing to draw."""
    parser = argparse.ArgumentParser(
        prog="isaac-appo plot",
        description="Training return against env steps and wall time. Runs that differ only in their seed are one "
        "line: their mean, with a band of one standard deviation.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="FOLDER", help="run folders, or folders that hold them")
    parser.add_argument("--out", type=Path, metavar="PNG", help="the picture (default: plot.png in the first FOLDER)")
    options = parser.parse_args(argv)
    from isaac_appo.report.seeds import draw_groups, find_runs, group_runs, groups_table

    try:
        groups = group_runs(find_runs(options.runs))
        if not groups:
            raise FileNotFoundError(f"{options.runs[0]}: no episode has ended in any of these runs yet. Try later")
        png = options.out or options.runs[0] / "plot.png"
        draw_groups(groups, png)
    except OSError as error:
        print(f"isaac-appo plot: {error}", file=sys.stderr)
        return 2
    print(groups_table(groups))
    print(f"\nPicture: {png}")
    return 0
