"""Small models for the engine tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from isaac_appo.sim.engine import Engine, EngineSpec
from isaac_appo.sim.registry import engine_class
from isaac_appo.tasks.ant import Ant

# A free body whose centre of mass lies off its frame's origin, and a motor that pushes a 2 kg block along x.
FLOATER = """<mujoco><option gravity="0 0 0"/><worldbody>
  <body name="ball" pos="1 2 3"><freejoint name="free"/><geom type="sphere" size=".1" mass="1" pos=".3 0 0"/></body>
</worldbody></mujoco>"""
SLIDER = """<mujoco><option gravity="0 0 0" integrator="Euler"/><worldbody>
  <body><joint name="push" type="slide" axis="1 0 0"/><geom type="box" size=".1 .1 .1" mass="2"/>
    <body><joint name="loose" type="slide" axis="0 1 0"/><geom type="box" size=".1 .1 .1" mass="1e-9"/></body></body>
</worldbody><actuator><motor joint="push" gear="5" ctrllimited="true" ctrlrange="-1 1"/></actuator></mujoco>"""
# 2 kg hanging at rest 0.5 m below a hinge about y.
PENDULUM = """<mujoco><option gravity="0 0 -9.81"/><worldbody>
  <body><joint name="hinge" axis="0 1 0"/><site name="pivot"/>
    <geom type="sphere" size=".1" pos="0 0 -.5" mass="2"/></body>
</worldbody><sensor><force site="pivot"/><torque site="pivot"/></sensor></mujoco>"""


def pile(memory: str) -> str:
    """Twelve boxes packed into each other on a floor, with a memory that may be too small for their contacts."""
    boxes = "".join(
        f'<body pos="{0.15 * i} 0 {0.09 + 0.15 * (i % 2)}"><freejoint/><geom type="box" size=".1 .1 .1"/></body>'
        for i in range(12)
    )
    return f'<mujoco><size memory="{memory}"/><worldbody><geom type="plane" size="9 9 1"/>{boxes}</worldbody></mujoco>'


@pytest.fixture()
def make_engine(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """make_engine(mjcf text or "" for the Ant, N, engine=name, **fields of EngineSpec); closed afterwards."""
    made: List[Engine] = []

    def make(mjcf: str = "", num_envs: int = 4, engine: str = "mujoco", **fields: Any) -> Engine:
        path = Path(Ant.model_file)
        if mjcf:
            path = tmp_path / f"model_{len(made)}.xml"
            path.write_text(mjcf)
        else:
            fields.setdefault("sites", Ant.sites)
        spec = {"device": "cpu", "control_dt": 0.0166, "substeps": 2, **fields}
        made.append(engine_class(engine)(EngineSpec(str(path), num_envs, **spec)))
        return made[-1]

    yield make
    for built in made:
        built.close()
