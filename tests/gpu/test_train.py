"""A run from the command line, evaluation beside it, and its continuation."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import List

import pytest

from isaac_appo.checkpoint import list_checkpoints
from isaac_appo.commands.main import main

PLACES = [
    pytest.param(["sim=mujoco"], id="cpu"),
    pytest.param(["sim=mujoco_warp", "sim_device=cuda:0"], id="cuda", marks=pytest.mark.gpu),
]


@pytest.mark.parametrize("place", PLACES)
def test_it_trains_and_goes_on(place: List[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "train", "task=Cartpole", *place, f"run_root={tmp_path}", "num_envs=64", "report.plot=False", "eval.num_envs=4",
        "train.params.config.minibatch_size=256", "report.tensorboard=False", "eval.every=3",
        "train.params.config.save_frequency=3", "task.env.episodeLength=30",
    ]  # fmt: skip
    assert main([*words, "max_iterations=4"]) == 0
    said = capsys.readouterr().out
    assert main([*words, "max_iterations=7"]) == 0
    resumed = capsys.readouterr().out
    run = tmp_path / "Cartpole" / "default" / "s42"
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [int(row["info/epochs"]) for row in rows] == [1, 2, 3, 4, 5, 6, 7]
    assert {float(row["lag/max"]) for row in rows[1:]} == {1.0}
    assert "Resumed from" in resumed and "update 4," in resumed
    assert "Evaluation of version 3" in said and "failed" not in said + resumed
    assert len(list_checkpoints(run / "checkpoints")) >= 1
