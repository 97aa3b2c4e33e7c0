"""The support matrix: task x engine x schedule x Python, and which cells the tests train.

`tests/doctor/test_matrix.py` trains every cell that says `tested` on the Python that runs it, and no other.
"""

from __future__ import annotations

from typing import Dict, Iterable, List, NamedTuple, Tuple

from isaac_appo.config.choices import choices

PYTHONS = ("3.8", "3.11")
"""3.11 stands for it and every later one."""


OFFERED = {"mujoco": ("3.8", "3.11"), "mujoco_warp": ("3.11",), "isaacgym": ("3.8",)}
"""Engine -> Pythons."""
HARDWARE = {"mujoco_warp": "an NVIDIA GPU", "isaacgym": "Isaac Gym Preview 4 and an NVIDIA GPU"}
"""Engine -> what it needs that the tests do not have."""


class Cell(NamedTuple):
    """One square of the matrix; `state` is tested, needs hardware or not offered."""

    task: str
    engine: str
    schedule: str
    python: str
    state: str


def cells() -> List[Cell]:
    """Every cell, in order. Errors: KeyError for an engine of the registry that is not in OFFERED."""
    from isaac_appo.sim.registry import ENGINES
    from isaac_appo.tasks.registry import TASKS

    return [
        Cell(task, engine, schedule, python, _state(engine, python))
        for task in sorted(TASKS)
        for engine in ENGINES
        for schedule in choices("schedule")
        for python in PYTHONS
    ]


def _state(engine: str, python: str) -> str:
    if python not in OFFERED[engine]:
        return "not offered"
    return "needs hardware" if engine in HARDWARE else "tested"


def table(rows: Iterable[Cell]) -> str:
    """The matrix as text: a line for each task, engine and schedule, a column for each Python."""
    states: Dict[Tuple[str, str, str], Dict[str, str]] = {}
    for task, engine, schedule, python, state in rows:
        states.setdefault((task, engine, schedule), {})[python] = state
    head = ["task", "engine", "schedule", *(f"Python {python}" for python in PYTHONS)]
    lines = [head, *([*key, *(by[python] for python in PYTHONS)] for key, by in states.items())]
    widths = [max(len(line[i]) for line in lines) + 2 for i in range(len(head))]
    return "\n".join("".join(map(str.ljust, line, widths)).rstrip() for line in lines)
