from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, Tuple, Type

import mujoco
import numpy as np
import pytest
import torch

from isaac_appo.kernels import wp
from isaac_appo.sim.engine import EngineError, EngineSpec
from isaac_appo.sim.mujoco_model import load_model
from isaac_appo.tasks.ant import Ant
from isaac_appo.tasks.base import Task
from isaac_appo.tasks.cartpole import Cartpole

from .conftest import SLIDER
from .test_contract import CONTRACT, drive, host, rows

if find_spec("mujoco_warp") is None:
    pytest.skip("mujoco_warp is not installed", allow_module_level=True)

from isaac_appo.sim.mujoco_warp import MujocoWarpEngine, capacities

Make = Callable[..., Any]
DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)]
FLOOR_PAIRS = np.array([[0, geom] for geom in range(1, 14)])  # the Ant's floor is geom 0, its torso the only sphere


def _warp(make_engine: Make, *args: Any, **fields: Any) -> MujocoWarpEngine:
    engine: MujocoWarpEngine = make_engine(*args, engine="mujoco_warp", **fields)
    return engine


# ------------------------------------------------------------------------------------------------------------ capacity


@pytest.mark.parametrize(
    ("cone", "asked", "expected"),
    [
        ("pyramidal", {}, (25, 8 + 25 * 4)),  # a sphere and twelve capsules on a floor, eight limited joints
        ("elliptic", {}, (25, 8 + 25 * 3)),
        ("pyramidal", {"nconmax": 10}, (10, 8 + 10 * 4)),
        ("pyramidal", {"njmax": 7}, (25, 7)),
    ],
)
def test_room_is_made_for_what_the_model_can_make(
    cone: str, asked: Dict[str, int], expected: Tuple[int, int], tmp_path: Path
) -> None:
    path = tmp_path / "ant.xml"
    path.write_text(Path(Ant.model_file).read_text().replace("pyramidal", cone))
    spec = EngineSpec(str(path), 1, "cpu", 0.0166, 2, Ant.sites, options=asked)
    assert capacities(load_model(spec), FLOOR_PAIRS, spec) == expected


def test_the_engine_counts_the_pairs_that_can_collide(make_engine: Make) -> None:
    ant = _warp(make_engine)
    assert (ant.nconmax, ant.njmax) == (25, 108)
    cartpole = MujocoWarpEngine(EngineSpec(Cartpole.model_file, 1, "cpu", 0.0166, 2))
    assert (cartpole.nconmax, cartpole.njmax) == (1, 1)  # contacts are switched off, one joint is limited


@pytest.mark.parametrize(("setting", "what"), [("nconmax", "contacts"), ("njmax", "constraints")])
def test_what_finds_no_place_is_an_error_that_names_the_setting_once(
    setting: str, what: str, make_engine: Make
) -> None:
    engine = _warp(make_engine, options={setting: 3})
    engine.root_pos[:, :, 2] = 5.0  # in the air, with no joint near its limit
    engine.dof_pos.copy_((engine.dof_lower + engine.dof_upper) / 2.0)
    engine.reset(rows(4, 0, 1, 2, 3))
    engine.step()
    engine.check()
    engine.root_pos[:, :, 2] = 0.2  # in the floor with all it has
    engine.reset(rows(4, 0, 1, 2, 3))
    engine.step()
    with pytest.raises(EngineError, match=rf"dropped {what}.* sim\.{setting}=3 .*raise it, to sim\.{setting}=6"):
        engine.check()
    engine.check()


def test_a_model_that_warp_cannot_simulate_is_refused_with_the_reason(make_engine: Make) -> None:
    with pytest.raises(EngineError, match=r"MuJoCo Warp refuses it: .*PGS.*sim=mujoco"):
        _warp(make_engine, SLIDER.replace('integrator="Euler"', 'solver="PGS"'))


# --------------------------------------------------------------------------------------------------------------- state


def test_a_row_depends_on_its_state_alone_and_not_on_the_steps_before(make_engine: Make) -> None:
    engine, other = _warp(make_engine), _warp(make_engine)
    drive(engine, 30, seed=1)
    other.load_state_dict(engine.state_dict())
    assert engine._data.qacc_warmstart.numpy().any() and other._data.qacc_warmstart.numpy().any()
    a, b = drive(engine, 1, seed=2), drive(other, 1, seed=2)
    assert all(torch.equal(a[key], b[key]) for key in a)


def test_cpu_graphs_of_two_threads_take_turns(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engines = [_warp(make_engine) for _ in range(2)]
    running, overlaps = threading.Lock(), []

    def replay(graph: Any) -> None:
        overlaps.append(not running.acquire(blocking=False))
        time.sleep(0.01)
        if not overlaps[-1]:
            running.release()

    monkeypatch.setattr(wp, "capture_launch", replay)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda engine: [engine.step() for _ in range(5)], engines))
    assert overlaps == [False] * 10


def test_the_clock_keeps_its_resolution_however_long_a_row_lives(make_engine: Make) -> None:
    engine = _warp(make_engine, SLIDER, 2)
    for _ in range(50):
        engine.step()
    assert float(engine._state[0, 0]) == pytest.approx(engine.control_dt, rel=1e-5)


# -------------------------------------------------------------------------------------------------------- model fields


@pytest.mark.parametrize("device", DEVICES)
def test_rows_may_have_masses_gains_and_dampings_of_their_own(device: str, make_engine: Make) -> None:
    engine = _warp(make_engine, SLIDER, 4, control_dt=0.1, substeps=1, device=device)
    ones = torch.ones(4, 1, device=device)
    mass = torch.tensor([0.0, 4.0, 1e-9], device=device) * ones  # the 2 kg block weighs twice as much
    gain = torch.zeros(4, 1, 10, device=device)
    gain[:, 0, 0] = 0.5
    damping = torch.tensor([10.0, 0.0], device=device) * ones
    engine.set_model_field("body_mass", rows(4, 1).to(device), mass)
    engine.set_model_field("actuator_gainprm", rows(4, 2).to(device), gain)
    engine.set_model_field("dof_damping", rows(4, 3).to(device), damping)
    engine.apply_efforts(torch.tensor([4.0, 0.0], device=device) * ones)
    engine.step()
    # v = F t / m; half the force; (m + b t) v = F t, since Euler takes the damping implicitly
    expected = torch.tensor([0.2, 0.1, 0.1, 0.4 / (2.0 + 10.0 * 0.1)])
    torch.testing.assert_close(engine.dof_vel[:, 0].cpu(), expected)
    weights = engine._batched["dof_invweight0"][:, 0].cpu()
    torch.testing.assert_close(weights, torch.tensor([0.5, 0.25, 0.5, 0.5]))  # 1 / m, which constraints are scaled by


def test_a_model_field_of_the_wrong_shape_is_refused_and_the_state_is_left_alone(make_engine: Make) -> None:
    engine = _warp(make_engine)
    before = drive(engine, 3, seed=4)
    with pytest.raises(EngineError, match=r"geom_friction: values have shape \(4, 3\), the field \(4, 14, 3\)"):
        engine.set_model_field("geom_friction", rows(4, 0), torch.ones(4, 3))
    assert all(torch.equal(before[key], value) for key, value in host(engine).items())


# -------------------------------------------------------------------------------------------------------------- parity

# One physics step from the same state, float32 against float64: absolute, per quantity.
TOLERANCE = {"root_pos": 1e-6, "root_quat": 1e-6, "root_lin_vel": 5e-5, "root_ang_vel": 1e-4}
TOLERANCE.update({"dof_pos": 5e-6, "dof_vel": 3e-4, "site_wrench": 5e-3})


class Contacts:
    """What MuJoCo C finds in a row: whether anything touches, and whether a capsule stands steeply on the floor.

    There the two differ by design: MuJoCo Warp turns the friction pyramid of a capsule that leans by less than 30
    degrees from the normal, MuJoCo C never does. Both approximate the same cone.
    """

    def __init__(self, path: str) -> None:
        self.model = mujoco.MjModel.from_xml_path(path)
        self.data = mujoco.MjData(self.model)

    def __call__(self, row: np.ndarray) -> Tuple[bool, bool]:
        mujoco.mj_setState(self.model, self.data, row, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        mujoco.mj_fwdPosition(self.model, self.data)
        capsule = mujoco.mjtGeom.mjGEOM_CAPSULE.value
        geoms = [c.geom[1] for c in self.data.contact if self.model.geom_type[c.geom[1]] == capsule]
        axes = self.data.geom_xmat[geoms].reshape(-1, 3, 3)[:, :, 2]
        return self.data.ncon > 0, bool((np.hypot(axes[:, 0], axes[:, 1]) < 0.5).any())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("task", "effort"), [(Ant, 15.0), (Cartpole, 400.0)])
def test_one_step_from_the_same_state_is_that_of_mujoco(
    task: Type[Task], effort: float, device: str, make_engine: Make, tmp_path: Path
) -> None:
    """100 steps, the state made the same before each; then 100 without, whose drift is only told (pytest -s)."""
    text, n = Path(task.model_file).read_text(), 8
    fields: Dict[str, Any] = {"sites": task.sites, "control_dt": 0.0083, "substeps": 1}
    ours, theirs = _warp(make_engine, text, n, device=device, **fields), make_engine(text, n, **fields)
    contacts = Contacts(theirs.spec.model_path)
    generator = torch.Generator().manual_seed(0)
    everyone, touching = torch.ones(n, dtype=torch.bool), 0

    def advance() -> Dict[str, torch.Tensor]:
        efforts = effort * (2.0 * torch.rand(n, len(theirs.dof_names), generator=generator) - 1.0)
        for engine in (ours, theirs):
            engine.apply_efforts(efforts)
            engine.step()
        assert not ours.invalid.any() and not theirs.invalid.any()
        return {key: (getattr(ours, key).cpu() - getattr(theirs, key)).abs().flatten(1) for key in TOLERANCE}

    for _ in range(100):
        for key in CONTRACT[:6]:
            getattr(ours, key).copy_(getattr(theirs, key))
        for engine in (ours, theirs):
            engine.reset(everyone)
        found = [contacts(row) for row in theirs.state_dict()["state"].numpy()]
        alike = torch.tensor([not steep for _, steep in found])
        touching += sum(touch and not steep for touch, steep in found)
        for key, error in advance().items():
            assert error[alike].max() <= TOLERANCE[key] if error.numel() else True, key
    assert touching > 50 or task is Cartpole
    ours.check()
    drift = [advance() for _ in range(100)][-1]
    print(task.name, device, "drift after 100 steps:", {k: float(e.max()) for k, e in drift.items() if e.numel()})


# ------------------------------------------------------------------------------------------------------------- streams


@pytest.mark.gpu
def test_steps_run_on_the_current_stream_and_never_wait(make_engine: Make) -> None:
    engine = _warp(make_engine, device="cuda:0")
    straight = drive(engine, 3, seed=5)
    other = _warp(make_engine, device="cuda:0")
    efforts, mask = torch.zeros(4, 8, device="cuda:0"), torch.zeros(4, dtype=torch.bool, device="cuda:0")
    stream, generator = torch.cuda.Stream(), torch.Generator().manual_seed(5)
    drawn = [15.0 * (2.0 * torch.rand(4, 8, generator=generator) - 1.0) for _ in range(3)]
    with torch.cuda.stream(stream):
        for values in drawn:
            efforts.copy_(values)
            torch.cuda.set_sync_debug_mode("error")
            try:
                torch.cuda._sleep(10_000_000)  # a step on any other stream would overtake its efforts
                other.apply_efforts(efforts)
                other.step()
                other.reset(mask)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    stream.synchronize()
    for key, value in host(other).items():
        torch.testing.assert_close(value, straight[key], atol=1e-2, rtol=1e-3)


@pytest.mark.gpu
def test_a_step_records_itself_into_a_graph_of_pytorch(make_engine: Make) -> None:
    engine, other = _warp(make_engine, device="cuda:0"), _warp(make_engine, device="cuda:0")
    efforts = torch.full((4, 8), 3.0, device="cuda:0")
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        other.apply_efforts(efforts)
        other.step()
    for _ in range(5):
        engine.apply_efforts(efforts)
        engine.step()
        graph.replay()
    torch.cuda.synchronize()
    for key, value in host(other).items():
        torch.testing.assert_close(value, host(engine)[key], atol=1e-2, rtol=1e-3)
