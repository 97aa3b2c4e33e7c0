"""``isaac-appo doctor``: what this machine can run and why not, on one screen."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import List, Sequence

from isaac_appo.doctor.checks import Check, examine
from isaac_appo.doctor.verdict import EMBEDDED, Verdict, verdicts

_EPILOG = """
Exit code: 0 if the embedded engine (sim=mujoco) can train on this machine, else 1.
Marks: ok; !! works with a catch; -- what needs it does not work.
"""
_MARKS = {"ok": "ok", "warn": "!!", "no": "--"}


def main(argv: List[str]) -> int:
    """Print the checks, or the support matrix; 0 if the embedded engine can train, else 1."""
    parser = argparse.ArgumentParser(
        prog="isaac-appo doctor",
        description="What this machine can run and why not.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--matrix", action="store_true", help="what the tests train: task x engine x schedule x Python")
    where = "where runs would be written"
    parser.add_argument("--run-root", type=Path, default=Path("runs"), metavar="DIR", help=where)
    options = parser.parse_args(argv)
    if options.matrix:
        return _matrix(options.json)
    checks, engines = examine(options.run_root)
    found = verdicts(checks, engines)
    can_train = next(verdict.works for verdict in found if verdict.engine == EMBEDDED)
    if options.json:
        lists = {"checks": [c._asdict() for c in checks], "engines": [v._asdict() for v in found]}
        print(json.dumps({**lists, "embedded_engine_trains": can_train}, indent=2))
    else:
        print(screen(checks, found))
    return 0 if can_train else 1


def screen(checks: Sequence[Check], found: Sequence[Verdict]) -> str:
    """The checks with their remedies, then the engines."""
    lines: List[str] = []
    for check in checks:
        lines.append(f"{_MARKS[check.status]}  {check.name:<14}{check.fact}")
        lines += [f"    {'':<14}-> {check.remedy}"] if check.remedy else []
    engines = [f"{'ok' if v.works else '--'}  sim={v.engine:<12} {v.reason}" for v in found]
    return "\n".join([*lines, "", "Engines:", *engines])


def _matrix(as_json: bool) -> int:
    from isaac_appo.doctor.matrix import HARDWARE, cells, table

    found = cells()
    if as_json:
        print(json.dumps([cell._asdict() for cell in found], indent=2))
        return 0
    print(table(found))
    print("\ntested: the tests train it. Hardware that they do not have:")
    print("\n".join(f"  {engine}: {needed}" for engine, needed in HARDWARE.items()))
    return 0
