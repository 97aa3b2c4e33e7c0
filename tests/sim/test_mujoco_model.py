from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

from isaac_appo.sim.engine import EngineError, EngineSpec
from isaac_appo.sim.mujoco import MujocoEngine

GEOM = '<geom type="sphere" size=".1" mass="1"/>'
HINGE = f'<body><joint name="a" axis="0 0 1"/>{GEOM}</body>'


def _model(bodies: str, tail: str = "") -> str:
    return f"<mujoco><worldbody>{bodies}</worldbody>{tail}</mujoco>"


def _motor(attributes: str) -> str:
    return f"<actuator>{attributes}</actuator>"


BAD = {
    "not xml": ("<mujoco", "does not load"),
    "zero mass": (_model('<body><joint name="a"/></body>'), "mass"),
    "ball": (_model(f'<body><joint name="b" type="ball"/>{GEOM}</body>'), "'b' is a ball joint; use three hinges"),
    "unnamed": (_model(f"<body><joint/>{GEOM}</body>"), "joint 0 has no name"),
    "servo": (_model(HINGE, _motor('<position name="p" joint="a" kp="3"/>')), "'p' is not a plain motor"),
    "two motors": (_model(HINGE, _motor('<motor joint="a"/><motor joint="a"/>')), "'a' has two motors"),
    "state": (_model(HINGE, _motor('<general joint="a" dyntype="integrator"/>')), "state of their own"),
}


@pytest.mark.parametrize("kind", sorted(BAD))
def test_a_bad_model_is_refused_with_its_file_and_the_reason(
    kind: str, make_engine: Callable[..., MujocoEngine], tmp_path: Path
) -> None:
    mjcf, reason = BAD[kind]
    with pytest.raises(EngineError, match=reason) as error:
        make_engine(mjcf)
    assert str(tmp_path / "model_0.xml") in str(error.value)


def test_a_missing_file_is_named() -> None:
    with pytest.raises(EngineError, match=r"'/nowhere/robot\.xml' does not exist"):
        MujocoEngine(EngineSpec("/nowhere/robot.xml", 1, "cpu", 0.01, 1))


@pytest.mark.parametrize(
    ("sensors", "missing"), [("", "force"), ('<force site="s"/>', "torque"), ('<torque site="s"/>', "force")]
)
def test_a_site_without_both_sensors_is_refused(
    sensors: str, missing: str, make_engine: Callable[..., MujocoEngine]
) -> None:
    body = HINGE.replace("</body>", '<site name="s"/></body>')
    with pytest.raises(EngineError, match=f"site 's' has no {missing} sensor; add <{missing} site=\"s\"/>"):
        make_engine(_model(body, f"<sensor>{sensors}</sensor>"), sites=("s",))


def test_limits_efforts_and_the_start_come_from_the_model(make_engine: Callable[..., MujocoEngine]) -> None:
    bodies = (
        f'<body pos="0 0 1" quat="0 0 1 0"><freejoint/>{GEOM}'
        f'<body><joint name="a" range="30 100" limited="true"/>{GEOM}'
        f'<body><joint name="b" type="slide"/>{GEOM}</body></body></body>'
    )
    engine: Any = make_engine(_model(bodies, _motor('<motor joint="b" gear="-3"/>')))
    assert engine.dof_names == ("a", "b")
    assert engine.initial_root_pos.tolist() == [[0.0, 0.0, 1.0]]
    assert engine.initial_root_quat.tolist() == [[0.0, 1.0, 0.0, 0.0]]
    torch.testing.assert_close(engine.initial_dof_pos, torch.tensor([math.radians(30), 0.0]))
    torch.testing.assert_close(engine.dof_lower, torch.tensor([math.radians(30), -math.inf]))
    torch.testing.assert_close(engine.dof_upper, torch.tensor([math.radians(100), math.inf]))
    assert engine.effort_limit.tolist() == [0.0, math.inf]
    assert engine.dof_pos.shape == (4, 2)
    assert engine.root_quat.tolist() == [[[0.0, 1.0, 0.0, 0.0]]] * 4
