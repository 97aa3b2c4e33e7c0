"""The support matrix is what is trained here: each cell that says `tested` on this Python, and no other."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from isaac_appo.commands.main import main
from isaac_appo.config.choices import choices
from isaac_appo.doctor.matrix import Cell, cells, table
from isaac_appo.sim.registry import ENGINES
from isaac_appo.tasks.registry import TASKS

PYTHON = "3.8" if sys.version_info[:2] == (3, 8) else "3.11"
SMALL = ["num_envs=8", "max_iterations=2", "eval.enabled=False", "report.console=off", "report.tensorboard=False"]
SMALL += ["report.plot=False", "train.params.config.horizon_length=8", "train.params.config.minibatch_size=64"]


@pytest.mark.parametrize("cell", [c for c in cells() if c.state == "tested" and c.python == PYTHON], ids=" ".join)
def test_a_tested_cell_trains(cell: Cell, tmp_path: Path) -> None:
    words = [f"task={cell.task}", f"sim={cell.engine}", f"schedule={cell.schedule}", f"run_root={tmp_path}"]
    assert main(["train", *words, *SMALL]) == 0
    assert (tmp_path / cell.task / "default" / "s42" / "checkpoints" / "ckpt_000000002.pth").is_file()


def test_the_matrix_has_every_combination_once() -> None:
    keys = [cell[:4] for cell in cells()]
    assert len(keys) == len(set(keys)) == len(TASKS) * len(ENGINES) * 3 * 2
    assert {cell.schedule for cell in cells()} == set(choices("schedule")) == {"sync", "lockstep", "free"}
    assert {cell.engine for cell in cells()} == set(ENGINES)


@pytest.mark.parametrize(
    ("engine", "python", "state"),
    [
        ("mujoco", "3.8", "tested"),
        ("mujoco", "3.11", "tested"),
        ("mujoco_warp", "3.8", "not offered"),
        ("mujoco_warp", "3.11", "needs hardware"),
        ("isaacgym", "3.8", "needs hardware"),
        ("isaacgym", "3.11", "not offered"),
    ],
)
def test_where_each_engine_is_offered(engine: str, python: str, state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ENGINES, engine, ENGINES["mujoco"])
    states = {cell.state for cell in cells() if (cell.engine, cell.python) == (engine, python)}
    assert states == {state}


def test_the_table_has_a_line_for_each_task_engine_and_schedule() -> None:
    rows = [Cell("Ant", "mujoco", "sync", "3.8", "tested"), Cell("Ant", "mujoco", "sync", "3.11", "needs hardware")]
    assert table(rows).splitlines() == [
        "task  engine  schedule  Python 3.8  Python 3.11",
        "Ant   mujoco  sync      tested      needs hardware",
    ]
