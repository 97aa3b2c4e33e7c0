"""The support matrix: task x engine x schedule x Python, and which cells the tests train.

`tests/doctor/test_matrix.py` trains every cell that says `tested` on the Python that runs it, and no other.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Tuple

from isaac_appo.config.choices import choices

PYTHONS = ("3.8", "3.11")
"""3.11 stands for it and every later one."""


class Lane(NamedTuple):
    """Where an engine is offered: the Pythons, and the hardware that the tests do not have; empty if they need none."""

    pythons: Tuple[str, ...]
    hardware: str = ""


LANES: Dict[str, Lane] = {
    "mujoco": Lane(("3.8", "3.11")),
    "mujoco_warp": Lane(("3.11",), "an NVIDIA GPU"),
    "isaacgym": Lane(("3.8",), "Isaac Gym Preview 4 and an NVIDIA GPU"),
}


class Cell(NamedTuple):
    """One square of the matrix; `state` is tested, needs hardware or not offered."""

    task: str
    engine: str
    schedule: str
    python: str
    state: str


def cells() -> List[Cell]:
    """Every cell, in order. Errors: KeyError for an engine of the registry without a lane."""
    from isaac_appo.sim.registry import ENGINES
    from isaac_appo.tasks.registry import TASKS

    return [
        Cell(task, engine, schedule, python, _state(LANES[engine], python))
        for task in sorted(TASKS)
        for engine in ENGINES
        for schedule in choices("schedule")
        for python in PYTHONS
    ]


def _state(lane: Lane, python: str) -> str:
    if python not in lane.pythons:
        return "not offered"
    return "needs hardware" if lane.hardware else "tested"


def table(rows: Iterable[Cell]) -> str:
    """The matrix as text: a line for each task, engine and schedule, a column for each Python."""
    states: Dict[Tuple[str, str, str], Dict[str, str]] = {}
    for task, engine, schedule, python, state in rows:
        states.setdefault((task, engine, schedule), {})[python] = state
    head = ["task", "engine", "schedule", *(f"Python {python}" for python in PYTHONS)]
    lines = [head, *([*key, *(by[python] for python in PYTHONS)] for key, by in states.items())]
    widths = [max(len(line[i]) for line in lines) + 2 for i in range(len(head))]
    return "\n".join("".join(map(str.ljust, line, widths)).rstrip() for line in lines)
