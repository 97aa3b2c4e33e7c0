"""What every engine promises, on every engine and device."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any, Callable, Dict

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from isaac_appo.sim.engine import Engine, EngineError

from .conftest import FLOATER, PENDULUM, SLIDER

Make = Callable[..., Any]
CONTRACT = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench", "invalid")
NEEDS_WARP = pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="mujoco_warp is not installed")
ENGINES = [
    pytest.param(("mujoco", "cpu"), id="mujoco"),
    pytest.param(("mujoco_warp", "cpu"), id="mujoco_warp", marks=NEEDS_WARP),
    pytest.param(("mujoco_warp", "cuda:0"), id="mujoco_warp-cuda", marks=pytest.mark.gpu),
]


@pytest.fixture(params=ENGINES)
def make(request: pytest.FixtureRequest, make_engine: Make) -> Make:
    """make_engine with engine and device filled in."""
    engine, device = request.param
    return partial(make_engine, engine=engine, device=device)


def rows(n: int, *chosen: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[list(chosen)] = True
    return mask


def drive(engine: Engine, steps: int, seed: int) -> Dict[str, Tensor]:
    """Push the ants around at random; the same efforts for the same seed. The state in the end, on the host."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        engine.apply_efforts(15.0 * (2.0 * torch.rand(engine.num_envs, 8, generator=generator) - 1.0))
        engine.step()
    return host(engine)


def host(engine: Engine) -> Dict[str, Tensor]:
    return {key: value.cpu() for key, value in engine.state_dict().items()}


def assert_same(engine: Engine, a: Dict[str, Tensor], b: Dict[str, Tensor]) -> None:
    """Equal to the bit; on a GPU, where the order of sums varies, to the tolerance of one step."""
    for key in a:
        if engine.device.type == "cpu":
            assert torch.equal(a[key], b[key]), key
        else:
            torch.testing.assert_close(a[key], b[key], atol=1e-2, rtol=1e-3)


def test_tensors_keep_their_memory_type_and_device(make: Make) -> None:
    engine = make()
    before = {key: getattr(engine, key).data_ptr() for key in CONTRACT}
    saved = drive(engine, 3, seed=0)
    engine.reset(rows(4, 0, 1, 2, 3))
    engine.load_state_dict(saved)
    assert {key: getattr(engine, key).data_ptr() for key in CONTRACT} == before
    assert {getattr(engine, key).dtype for key in CONTRACT[:-1]} == {torch.float32}
    assert {getattr(engine, key).device for key in CONTRACT} == {torch.device(engine.spec.device)}
    assert engine.host_synchronous == (engine.device.type == "cpu")


def test_a_new_engine_stands_in_the_initial_state(make: Make) -> None:
    engine = make()
    for key in ("root_pos", "root_quat", "dof_pos"):
        assert torch.equal(getattr(engine, key), getattr(engine, "initial_" + key).expand_as(getattr(engine, key)))
    for key in ("root_lin_vel", "root_ang_vel", "dof_vel", "site_wrench", "invalid"):
        assert not getattr(engine, key).any()
    before = host(engine)
    engine.reset(rows(4, 0, 1, 2, 3))
    assert all(torch.equal(before[key], value) for key, value in host(engine).items())


def test_velocities_are_in_the_world_frame_at_the_origin_of_the_body(make: Make) -> None:
    engine = make(FLOATER, 64, control_dt=1e-3, substeps=1)
    generator = torch.Generator().manual_seed(1)
    quat = torch.nn.functional.normalize(torch.randn(64, 1, 4, generator=generator), dim=-1)
    spin = torch.randn(64, 1, 3, generator=generator)
    engine.root_quat.copy_(quat)
    engine.root_ang_vel.copy_(spin)
    engine.root_lin_vel.copy_(torch.randn(64, 1, 3, generator=generator))
    engine.reset(torch.ones(64, dtype=torch.bool))
    pos = host(engine)["root_pos"]
    engine.step()
    new = host(engine)
    # dq/dt = (spin, 0) * q / 2 in the world frame, written out for xyzw
    xyz, w = quat[..., :3], quat[..., 3:]
    rate = 0.5 * torch.cat([w * spin + torch.cross(spin, xyz, dim=-1), -(spin * xyz).sum(-1, keepdim=True)], -1)
    torch.testing.assert_close((new["root_quat"] - quat) / 1e-3, rate, atol=5e-3, rtol=0)
    torch.testing.assert_close((new["root_pos"] - pos) / 1e-3, new["root_lin_vel"], atol=5e-3, rtol=0)

    model = mujoco.MjModel.from_xml_path(engine.spec.model_path)
    data, velocity = mujoco.MjData(model), np.zeros(6)
    for row, full in enumerate(new["state"].double().numpy()):
        mujoco.mj_setState(model, data, full, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        mujoco.mj_forward(model, data)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY.value, 1, velocity, 0)
        np.testing.assert_allclose(new["root_ang_vel"][row, 0], velocity[:3], atol=1e-5)
        np.testing.assert_allclose(new["root_lin_vel"][row, 0], velocity[3:], atol=1e-5)
        np.testing.assert_allclose(new["root_quat"][row, 0], data.xquat[1][[1, 2, 3, 0]], atol=1e-6)


def test_reset_touches_the_masked_rows_only(make: Make) -> None:
    engine = make()
    before = drive(engine, 5, seed=2)
    for key in CONTRACT[:6]:
        tensor = getattr(engine, key)
        tensor.copy_(torch.randn(tensor.shape, generator=torch.Generator().manual_seed(3)))
    engine.reset(rows(4, 1, 3))
    after = host(engine)
    for row in (0, 2):
        assert torch.equal(after["state"][row], before["state"][row])
        assert torch.equal(after["site_wrench"][row], before["site_wrench"][row])
    for row in (1, 3):
        assert after["state"][row, 0] == 0.0
        assert not torch.equal(after["state"][row, 1:], before["state"][row, 1:])
        assert not after["site_wrench"][row].any()
        assert torch.equal(after["dof_pos"][row], after["state"][row, 8:16].float())
    assert before["site_wrench"][[1, 3]].any()


def test_a_saved_state_continues_bit_for_bit_in_a_fresh_engine(make: Make) -> None:
    first = make()
    steps = 15 if first.device.type == "cpu" else 2
    saved = drive(first, 15, seed=6)
    straight = drive(first, steps, seed=7)
    fresh = make()
    fresh.load_state_dict(saved)
    assert all(torch.equal(saved[key], value) for key, value in host(fresh).items())
    assert_same(fresh, straight, drive(fresh, steps, seed=7))
    assert not torch.equal(straight["dof_pos"], saved["dof_pos"])


def test_a_state_of_another_simulation_is_refused(make: Make) -> None:
    saved = make("", 3).state_dict()
    engine = make("", 4)
    with pytest.raises(EngineError, match=rf"{engine.name}: saved state has shape \(3, 30\), this one \(4, 30\)"):
        engine.load_state_dict(saved)
    del saved["dof_vel"]
    with pytest.raises(EngineError, match="keys dof_vel"):
        engine.load_state_dict(saved)


BREAKS = [(key, float("nan")) for key in ("root_pos", "root_quat", "root_ang_vel", "dof_pos", "dof_vel")]
BREAKS += [("dof_vel", float("inf")), ("dof_pos", 1e12)]


@pytest.mark.parametrize(("key", "value"), BREAKS)
def test_a_broken_row_is_invalid_and_harms_no_other(key: str, value: float, make: Make) -> None:
    clean, hurt = make("", 5), make("", 5)
    for engine in (clean, hurt):
        drive(engine, 3, seed=8)
    getattr(hurt, key)[1] = value
    hurt.reset(rows(5, 1))
    drive(clean, 1, seed=9)
    drive(hurt, 1, seed=9)
    assert hurt.invalid.tolist() == [False, True, False, False, False]
    others = [0, 2, 3, 4]
    a, b = host(clean), host(hurt)
    assert_same(hurt, {name: a[name][others] for name in a}, {name: b[name][others] for name in b})
    assert torch.equal(hurt.root_pos[1], hurt.initial_root_pos)
    assert torch.equal(hurt.dof_pos[1], hurt.initial_dof_pos)
    assert not hurt.root_ang_vel[1].any()
    assert not hurt.site_wrench[1].any()
    hurt.reset(rows(5, 0))
    assert hurt.invalid[1]
    hurt.reset(rows(5, 1))
    assert not hurt.invalid.any()
    hurt.step()
    assert not hurt.invalid.any()
    hurt.check()


@pytest.mark.parametrize("substeps", [1, 3])
def test_a_row_that_starts_broken_is_not_swapped_for_a_healthy_one(substeps: int, make: Make) -> None:
    engine = make(FLOATER, 2, substeps=substeps)  # no sensor sees it, and with one substep no clock does
    engine.root_lin_vel[1] = float("nan")
    engine.reset(rows(2, 0, 1))
    engine.step()
    assert engine.invalid.tolist() == [False, True]


def test_an_effort_that_is_no_number_makes_its_row_invalid(make: Make) -> None:
    engine = make(SLIDER, 2)
    engine.apply_efforts(torch.tensor([[1.0, 0.0], [float("nan"), 0.0]]))
    engine.step()
    assert engine.invalid.tolist() == [False, True]
    engine.apply_efforts(torch.zeros(2, 2))
    engine.step()
    assert not engine.invalid.any()


def test_an_effort_is_a_force_and_the_motor_limits_it(make: Make) -> None:
    engine = make(SLIDER, 3, control_dt=0.1, substeps=2)
    assert engine.effort_limit.tolist() == [5.0, 0.0]
    engine.apply_efforts(torch.tensor([[4.0, 0.0], [-20.0, 0.0], [0.0, 7.0]]))
    engine.step()
    expected = torch.tensor([4.0 / 2.0 * 0.1, -5.0 / 2.0 * 0.1, 0.0])  # v = F t / m, F at most 5 N
    torch.testing.assert_close(engine.dof_vel[:, 0].cpu(), expected)
    assert engine.dof_vel[2, 1] == 0.0


def test_the_site_wrench_is_what_the_parent_exerts_on_the_body(make: Make) -> None:
    engine = make(PENDULUM, 2, sites=("pivot",))
    assert not engine.site_wrench.any()
    engine.step()
    expected = torch.tensor([0.0, 0.0, 2 * 9.81, 0.0, 0.0, 0.0])
    torch.testing.assert_close(engine.site_wrench[0, 0].cpu(), expected, atol=1e-4, rtol=1e-4)
    engine.dof_pos.fill_(0.0)
    engine.reset(rows(2, 0))
    assert not engine.site_wrench[0].any()
    assert engine.site_wrench[1].any()


def test_a_model_field_that_is_not_offered_is_refused_by_name(make: Make) -> None:
    engine = make("", 1)
    offered = ", ".join(engine.capabilities()) or "none"
    assert "friction" not in engine.capabilities()
    with pytest.raises(EngineError, match=f"cannot set the model field 'friction'; fields it can set: {offered}"):
        engine.set_model_field("friction", rows(1, 0), torch.ones(1))
