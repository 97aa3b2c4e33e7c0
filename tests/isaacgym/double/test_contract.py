"""The engine contract, on engine `mujoco` and on engine `isaacgym` alike."""

from __future__ import annotations

from typing import Any, Callable, Dict

import pytest
import torch
from torch import Tensor

from isaac_appo.sim.engine import Engine, EngineError

Make = Callable[..., Engine]
CONTRACT = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench", "invalid")
BALL = """<mujoco><option gravity="0 0 0"/><worldbody>
  <body name="ball" pos="1 2 3"><freejoint/><geom type="sphere" size=".1" mass="1"/></body>
</worldbody></mujoco>"""
SLIDER = """<mujoco><option gravity="0 0 0" integrator="Euler"/><worldbody>
  <body><joint name="push" type="slide" axis="1 0 0"/><geom type="box" size=".1 .1 .1" mass="2"/>
    <body><joint name="loose" type="slide" axis="0 1 0"/><geom type="box" size=".1 .1 .1" mass="1e-3"/></body></body>
</worldbody><actuator><motor joint="push" gear="5" ctrllimited="true" ctrlrange="-1 1"/></actuator></mujoco>"""
both = pytest.mark.parametrize("name", ["mujoco", "isaacgym"])


def rows(n: int, *chosen: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[list(chosen)] = True
    return mask


def drive(engine: Engine, steps: int, seed: int) -> Dict[str, Tensor]:
    """Push the ants around at random; returns copies of the contract tensors."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        engine.apply_efforts(15.0 * (2.0 * torch.rand(engine.num_envs, 8, generator=generator) - 1.0))
        engine.step()
    return {key: getattr(engine, key).clone() for key in CONTRACT}


@both
def test_tensors_keep_their_memory_type_and_shape(name: str, make_engine: Make) -> None:
    engine = make_engine(name)
    before = {key: getattr(engine, key).data_ptr() for key in CONTRACT}
    drive(engine, 3, seed=0)
    saved = engine.state_dict()
    engine.reset(rows(4, 0, 1, 2, 3))
    engine.load_state_dict(saved)
    assert {key: getattr(engine, key).data_ptr() for key in CONTRACT} == before
    assert {getattr(engine, key).dtype for key in CONTRACT[:-1]} == {torch.float32}
    shapes = [tuple(getattr(engine, key).shape) for key in CONTRACT]
    assert shapes == [(4, 1, 3), (4, 1, 4), (4, 1, 3), (4, 1, 3), (4, 8), (4, 8), (4, 4, 6), (4,)]


def test_both_engines_describe_the_same_model(make_engine: Make) -> None:
    a, b = make_engine("mujoco"), make_engine("isaacgym")
    assert a.dof_names == b.dof_names and (a.exclusive, b.exclusive) == (False, True)
    for key in ("dof_lower", "dof_upper", "effort_limit", "initial_root_pos", "initial_root_quat", "initial_dof_pos"):
        assert torch.equal(getattr(a, key), getattr(b, key)), key
    for key in CONTRACT:
        assert torch.equal(getattr(a, key), getattr(b, key)), key


@both
def test_velocities_are_in_the_world_frame(name: str, make_engine: Make) -> None:
    engine = make_engine(name, BALL, 64, control_dt=1e-3, substeps=1)
    generator = torch.Generator().manual_seed(1)
    quat = torch.nn.functional.normalize(torch.randn(64, 1, 4, generator=generator), dim=-1)
    spin = torch.randn(64, 1, 3, generator=generator)
    engine.root_quat.copy_(quat)
    engine.root_ang_vel.copy_(spin)
    engine.root_lin_vel.copy_(torch.randn(64, 1, 3, generator=generator))
    engine.reset(rows(64, *range(64)))
    pos = engine.root_pos.clone()
    engine.step()
    xyz, w = quat[..., :3], quat[..., 3:]  # dq/dt = (spin, 0) * q / 2 in the world frame, written out for xyzw
    rate = 0.5 * torch.cat([w * spin + torch.cross(spin, xyz, dim=-1), -(spin * xyz).sum(-1, keepdim=True)], -1)
    torch.testing.assert_close((engine.root_quat - quat) / 1e-3, rate, atol=5e-3, rtol=0)
    torch.testing.assert_close((engine.root_pos - pos) / 1e-3, engine.root_lin_vel, atol=5e-3, rtol=0)
    torch.testing.assert_close(engine.root_ang_vel, spin, atol=1e-4, rtol=0)  # a ball keeps its spin in the world


@both
def test_reset_changes_the_masked_rows_only(name: str, make_engine: Make) -> None:
    plain, engine = make_engine(name), make_engine(name)
    for each in (plain, engine):
        drive(each, 5, seed=2)
    assert engine.site_wrench[[1, 3]].any()
    engine.root_pos[1] = torch.tensor([0.5, -0.5, 2.0])
    engine.dof_pos[3] = engine.initial_dof_pos + 0.1
    for row in (0, 2):
        engine.dof_pos[row] = 0.0  # written, but not reset: it must not reach the simulation
    engine.reset(rows(4, 1, 3))
    assert not engine.site_wrench[[1, 3]].any()
    drive(plain, 1, seed=3)
    drive(engine, 1, seed=3)
    for key in CONTRACT:
        assert torch.equal(getattr(engine, key)[[0, 2]], getattr(plain, key)[[0, 2]]), key
    torch.testing.assert_close(engine.root_pos[1, 0], torch.tensor([0.5, -0.5, 2.0]), atol=0.2, rtol=0)
    assert not torch.allclose(engine.dof_pos[3], plain.dof_pos[3], atol=0.01)


@both
@pytest.mark.parametrize("key", ["root_pos", "root_ang_vel", "dof_vel"])
@pytest.mark.parametrize("value", [float("nan"), 1e12])
def test_a_broken_row_is_parked_and_harms_no_other(name: str, key: str, value: float, make_engine: Make) -> None:
    clean, hurt = make_engine(name), make_engine(name)
    for each in (clean, hurt):
        drive(each, 3, seed=8)
    getattr(hurt, key)[1] = value
    hurt.reset(rows(4, 1))
    a, b = drive(clean, 1, seed=9), drive(hurt, 1, seed=9)
    assert hurt.invalid.tolist() == [False, True, False, False]
    assert all(torch.equal(a[k][[0, 2, 3]], b[k][[0, 2, 3]]) for k in CONTRACT)
    assert torch.equal(hurt.root_pos[1], hurt.initial_root_pos)
    assert torch.equal(hurt.dof_pos[1], hurt.initial_dof_pos)
    assert not hurt.root_ang_vel[1].any() and not hurt.site_wrench[1].any()
    hurt.reset(rows(4, 0))
    assert hurt.invalid[1]
    drive(hurt, 1, seed=9)  # from where it was parked, without a reset
    assert not hurt.invalid.any()
    getattr(hurt, key)[1] = value
    hurt.reset(rows(4, 1))
    drive(hurt, 1, seed=9)
    assert hurt.invalid[1]
    hurt.reset(rows(4, 1))
    assert not hurt.invalid.any()


@both
def test_an_effort_is_a_force_and_the_motor_limits_it(name: str, make_engine: Make) -> None:
    engine = make_engine(name, SLIDER, 3, control_dt=0.1, substeps=2)
    assert engine.effort_limit.tolist() == [5.0, 0.0] and engine.root_pos.shape == (3, 0, 3)
    engine.apply_efforts(torch.tensor([[4.0, 0.0], [-20.0, 0.0], [0.0, 7.0]]))
    engine.step()
    mass = 2.001
    expected = torch.tensor([4.0 / mass * 0.1, -5.0 / mass * 0.1, 0.0])  # v = F t / m, F at most 5 N
    torch.testing.assert_close(engine.dof_vel[:, 0], expected)
    assert engine.dof_vel[2, 1] == 0.0


@both
def test_a_saved_state_continues(name: str, make_engine: Make) -> None:
    first = make_engine(name)
    drive(first, 15, seed=6)
    saved = first.state_dict()
    straight = drive(first, 3, seed=7)
    fresh = make_engine(name)
    drive(fresh, 2, seed=5)
    fresh.load_state_dict(saved)
    assert all(torch.equal(value, saved[key]) for key, value in fresh.state_dict().items())
    again = drive(fresh, 3, seed=7)
    for key in CONTRACT[:6]:
        torch.testing.assert_close(again[key], straight[key], atol=2e-3, rtol=2e-3)


@both
@pytest.mark.parametrize("change", [lambda s: s.pop("invalid"), lambda s: s.update(invalid=torch.zeros(5))])
def test_a_state_of_another_simulation_is_refused(name: str, change: Any, make_engine: Make) -> None:
    engine = make_engine(name)
    saved = engine.state_dict()
    change(saved)
    with pytest.raises(EngineError, match="invalid"):
        engine.load_state_dict(saved)
