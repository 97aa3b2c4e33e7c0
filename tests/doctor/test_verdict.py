from __future__ import annotations

from typing import Dict

import pytest

from isaac_appo.doctor.checks import Check
from isaac_appo.doctor.verdict import NEEDS, verdicts

GOOD = {name: Check(name, "ok", "fine") for names in NEEDS.values() for name in names}
ENGINES = {"mujoco": "MuJoCo C", "mujoco_warp": "Warp", "isaacgym": "Isaac Gym"}


def works(changed: Dict[str, str], engines: Dict[str, str] = ENGINES) -> Dict[str, bool]:
    checks = {**GOOD, **{name: Check(name, status, "a fact") for name, status in changed.items()}}
    return {verdict.engine: verdict.works for verdict in verdicts(list(checks.values()), engines)}


def test_each_engine_fails_with_what_it_needs_only() -> None:
    assert works({}) == {"mujoco": True, "mujoco_warp": True, "isaacgym": True}
    assert works({"GPU": "no"}) == {"mujoco": True, "mujoco_warp": False, "isaacgym": True}
    assert works({"Isaac Gym": "no"}) == {"mujoco": True, "mujoco_warp": True, "isaacgym": False}
    assert works({"torch": "no"}) == {"mujoco": False, "mujoco_warp": False, "isaacgym": False}
    assert works({"MuJoCo": "no"})["mujoco"] is False
    assert works({"Isaac Gym GPU": "warn"})["isaacgym"] is True


def test_an_engine_that_is_not_in_the_registry_does_not_work_and_a_new_one_is_listed() -> None:
    assert works({}, {"mujoco": "MuJoCo C"}) == {"mujoco": True, "mujoco_warp": False, "isaacgym": False}
    assert works({}, {**ENGINES, "newton": "Newton"})["newton"] is True


@pytest.mark.parametrize(
    ("status", "text"), [("no", "Isaac Gym: a DOUBLE"), ("warn", "Isaac Gym; Isaac Gym: a DOUBLE")]
)
def test_the_reason_is_the_fact(status: str, text: str) -> None:
    checks = {**GOOD, "Isaac Gym": Check("Isaac Gym", status, "a DOUBLE")}
    assert verdicts(list(checks.values()), ENGINES)[2].reason == text
