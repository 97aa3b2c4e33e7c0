from __future__ import annotations

import math
from typing import Any, Dict

import pytest

from isaac_appo.tasks.registry import TASKS, TaskError, resolve_env_cfg, task_class


def test_every_task_is_found_under_its_own_name() -> None:
    assert {name: task_class(name).name for name in TASKS} == {name: name for name in TASKS}


@pytest.mark.parametrize(("name", "hint"), [("ant", "'Ant'"), ("Cartpol", "'Cartpole'")])
def test_a_misspelt_task_is_answered_with_the_nearest_and_the_list(name: str, hint: str) -> None:
    with pytest.raises(TaskError, match=f"Did you mean {hint}.*Tasks: Ant, Cartpole"):
        task_class(name)


def test_an_odd_name_still_lists_the_tasks() -> None:
    with pytest.raises(TaskError, match=r"task='ShadowHand' does not exist\. Tasks: Ant, Cartpole"):
        task_class("ShadowHand")


def test_settings_lie_on_top_of_the_defaults() -> None:
    cfg = resolve_env_cfg("Cartpole", {"resetDist": 2, "episodeLength": 100.0})
    assert cfg == {
        "episodeLength": 100, "resetDist": 2.0, "maxEffort": 400.0, "clipActions": 1.0, "clipObservations": 5.0,
    }  # fmt: skip
    assert isinstance(cfg["episodeLength"], int)
    assert isinstance(cfg["resetDist"], float)


def test_keys_without_effect_here_are_let_through() -> None:
    ours: Dict[str, Any] = {"numEnvs": 4096, "envSpacing": 5, "enableDebugVis": False, "controlFrequencyInv": 1}
    ours.update({"plane": {"staticFriction": 1.0}, "asset": {"assetFileName": "x"}, "enableCameraSensors": False})
    assert resolve_env_cfg("Ant", ours) == resolve_env_cfg("Ant", {})


def test_all_faults_are_told_at_once() -> None:
    wrong = {"resetdist": 3.0, "maxEffort": "much", "clipActions": 0.0, "episodeLength": 1.5, "controlFrequencyInv": 2}
    with pytest.raises(TaskError) as error:
        resolve_env_cfg("Cartpole", wrong)
    lines = str(error.value).splitlines()
    assert lines[0].startswith("task.env.resetdist=3.0 is no setting of Cartpole. Did you mean 'resetDist'?")
    assert "maxEffort='much' must be a number; the default is 400.0" in lines[1]
    assert "clipActions=0.0 must be above 0" in lines[2]
    assert "episodeLength=1.5 must be a whole number of at least 2; the default is 500" in lines[3]
    assert "controlFrequencyInv=2 must be 1" in lines[4]
    assert lines[5] == "Settings of Cartpole: episodeLength, resetDist, maxEffort, clipActions, clipObservations"


@pytest.mark.parametrize("value", [True, math.nan, math.inf, None])
def test_numbers_that_are_none_are_refused(value: Any) -> None:
    if value is None:
        assert resolve_env_cfg("Ant", {"upWeight": None})["upWeight"] == 0.1  # an empty YAML value
        return
    with pytest.raises(TaskError, match="upWeight"):
        resolve_env_cfg("Ant", {"upWeight": value})
