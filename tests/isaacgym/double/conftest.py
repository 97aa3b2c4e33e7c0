"""Isaac Gym's double, imported before torch; engines of both kinds, and a process that never made a simulation."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Callable, Iterator, List

import pytest

from isaac_appo.sim.isaacgym_import import import_isaacgym

import_isaacgym()

from isaacgym.simulation import Double  # noqa: E402

import isaac_appo.sim.isaacgym as engine_module  # noqa: E402
from isaac_appo.sim.engine import Engine, EngineSpec  # noqa: E402
from isaac_appo.sim.registry import engine_class  # noqa: E402
from isaac_appo.tasks.ant import Ant  # noqa: E402


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    yield
    forget()


def forget() -> None:
    """Let this process make another simulation."""
    Double.reset()
    engine_module._claims.clear()


@pytest.fixture()
def make_engine(tmp_path: Path) -> Iterator[Callable[..., Engine]]:
    """make_engine(engine name, mjcf text or "" for the Ant, N, **fields of EngineSpec)."""
    made: List[Engine] = []

    def make(name: str = "isaacgym", mjcf: str = "", num_envs: int = 4, **given: Any) -> Engine:
        path = Path(Ant.model_file)
        if mjcf:
            path = tmp_path / f"model_{len(made)}.xml"
            path.write_text(mjcf)
        else:
            given.setdefault("sites", Ant.sites)
        spec = {"device": "cpu", "control_dt": 0.0166, "substeps": 2, **given}
        Double.sims = 0
        engine_module._claims.clear()
        made.append(engine_class(name)(EngineSpec(str(path), num_envs, **spec)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()
