"""``isaac-appo list``: tasks, engines, schedules and the other choices, one line each."""

from __future__ import annotations

import argparse
import inspect
from typing import Callable, Dict, List

from isaac_appo.config.choices import choices


def main(argv: List[str]) -> int:
    """Print what there is of each kind that is asked for, all kinds by default."""
    parser = argparse.ArgumentParser(prog="isaac-appo list", description="What there is, one line each.")
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"any of {', '.join(KINDS)}; default: all")
    asked = parser.parse_args(argv).kinds
    for kind in asked:
        if kind not in KINDS:
            parser.error(f"{kind}: no such kind. Kinds: {', '.join(KINDS)}")
    print("\n\n".join(_section(kind) for kind in asked or KINDS))
    return 0


def _section(kind: str) -> str:
    found = KINDS[kind]()
    width = max(map(len, found)) + 2
    return "\n".join([f"{kind}:", *(f"  {name:<{width}}{text}".rstrip() for name, text in found.items())])


def _tasks() -> Dict[str, str]:
    from isaac_appo.tasks.registry import TASKS, task_class

    files = {name: inspect.getmodule(task_class(name)) for name in sorted(TASKS)}  # a task is one file
    return {f"task={name}": (inspect.getdoc(file) or "").split("\n")[0] for name, file in files.items()}


def _engines() -> Dict[str, str]:
    from isaac_appo.sim.registry import ENGINES

    return {**_group("sim")(), **{f"sim={name}": entry.text for name, entry in ENGINES.items()}}


def _group(group: str) -> Callable[[], Dict[str, str]]:
    return lambda: {f"{group}={name}": text for name, text in choices(group).items()}


KINDS: Dict[str, Callable[[], Dict[str, str]]] = {
    "tasks": _tasks,
    "engines": _engines,
    "schedules": _group("schedule"),
    "advantages": _group("advantage"),
    "losses": _group("loss"),
}
