from __future__ import annotations

import threading
from pathlib import Path
from typing import Callable, Dict

import mujoco
import numpy as np
import pytest
import torch
from torch import Tensor

from isaac_appo.sim.engine import EngineError
from isaac_appo.sim.mujoco import MujocoEngine

from .conftest import FLOATER, PENDULUM, SLIDER, pile

Make = Callable[..., MujocoEngine]
CONTRACT = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench", "invalid")


def _all(n: int) -> Tensor:
    return torch.ones(n, dtype=torch.bool)


def _rows(n: int, *rows: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[list(rows)] = True
    return mask


def _drive(engine: MujocoEngine, steps: int, seed: int) -> Dict[str, Tensor]:
    """Push the ants around at random; the same efforts for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        engine.apply_efforts(15.0 * (2.0 * torch.rand(engine.num_envs, 8, generator=generator) - 1.0))
        engine.step()
    return engine.state_dict()


def _equal(a: Dict[str, Tensor], b: Dict[str, Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


def test_tensors_keep_their_memory_and_type(make_engine: Make) -> None:
    engine = make_engine()
    before = {key: getattr(engine, key).data_ptr() for key in CONTRACT}
    saved = _drive(engine, 3, seed=0)
    engine.reset(_all(4))
    engine.load_state_dict(saved)
    assert {key: getattr(engine, key).data_ptr() for key in CONTRACT} == before
    assert {getattr(engine, key).dtype for key in CONTRACT[:-1]} == {torch.float32}


def test_velocities_are_in_the_world_frame_at_the_origin_of_the_body(make_engine: Make) -> None:
    engine = make_engine(FLOATER, 64, control_dt=1e-3, substeps=1)
    generator = torch.Generator().manual_seed(1)
    quat = torch.nn.functional.normalize(torch.randn(64, 1, 4, generator=generator), dim=-1)
    spin = torch.randn(64, 1, 3, generator=generator)
    engine.root_quat.copy_(quat)
    engine.root_ang_vel.copy_(spin)
    engine.root_lin_vel.copy_(torch.randn(64, 1, 3, generator=generator))
    engine.reset(_all(64))
    pos = engine.root_pos.clone()
    engine.step()
    # dq/dt = (spin, 0) * q / 2 in the world frame, written out for xyzw
    xyz, w = quat[..., :3], quat[..., 3:]
    rate = 0.5 * torch.cat([w * spin + torch.cross(spin, xyz, dim=-1), -(spin * xyz).sum(-1, keepdim=True)], -1)
    torch.testing.assert_close((engine.root_quat - quat) / 1e-3, rate, atol=5e-3, rtol=0)
    torch.testing.assert_close((engine.root_pos - pos) / 1e-3, engine.root_lin_vel, atol=5e-3, rtol=0)

    model = mujoco.MjModel.from_xml_path(engine.spec.model_path)
    data, velocity = mujoco.MjData(model), np.zeros(6)
    for row, full in enumerate(engine.state_dict()["state"].numpy()):
        mujoco.mj_setState(model, data, full, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
        mujoco.mj_forward(model, data)
        mujoco.mj_objectVelocity(model, data, mujoco.mjtObj.mjOBJ_XBODY.value, 1, velocity, 0)
        np.testing.assert_allclose(engine.root_ang_vel[row, 0], velocity[:3], atol=1e-5)
        np.testing.assert_allclose(engine.root_lin_vel[row, 0], velocity[3:], atol=1e-5)
        np.testing.assert_allclose(engine.root_quat[row, 0], data.xquat[1][[1, 2, 3, 0]], atol=1e-6)


def test_reset_touches_the_masked_rows_only(make_engine: Make) -> None:
    engine = make_engine()
    before = _drive(engine, 5, seed=2)
    for key in CONTRACT[:6]:
        getattr(engine, key).normal_(generator=torch.Generator().manual_seed(3))
    engine.reset(_rows(4, 1, 3))
    after = engine.state_dict()
    for row in (0, 2):
        assert torch.equal(after["state"][row], before["state"][row])
        assert torch.equal(after["site_wrench"][row], before["site_wrench"][row])
    for row in (1, 3):
        assert after["state"][row, 0] == 0.0
        assert not torch.equal(after["state"][row, 1:], before["state"][row, 1:])
        assert not after["site_wrench"][row].any()
        assert torch.equal(after["dof_pos"][row].double(), after["state"][row, 8:16])
    assert before["site_wrench"][[1, 3]].any()


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_the_number_of_threads_changes_no_bit(threads: int, make_engine: Make) -> None:
    one = _drive(make_engine("", 7), 20, seed=4)
    many = _drive(make_engine("", 7, threads=threads), 20, seed=4)
    assert _equal(one, many)
    assert not _equal(one, _drive(make_engine("", 7), 20, seed=5))


def test_a_saved_state_continues_bit_for_bit_in_a_fresh_engine(make_engine: Make) -> None:
    first = make_engine()
    saved = _drive(first, 15, seed=6)
    straight = _drive(first, 15, seed=7)
    fresh = make_engine()
    fresh.load_state_dict(saved)
    assert _equal(saved, fresh.state_dict())
    assert _equal(straight, _drive(fresh, 15, seed=7))


def test_a_state_of_another_simulation_is_refused(make_engine: Make) -> None:
    saved = make_engine("", 3).state_dict()
    engine = make_engine("", 4)
    with pytest.raises(EngineError, match=r"saved state has shape \(3, 30\), this one \(4, 30\)"):
        engine.load_state_dict(saved)
    del saved["control"]
    with pytest.raises(EngineError, match="keys control"):
        engine.load_state_dict(saved)


@pytest.mark.parametrize("key", ["root_pos", "root_quat", "root_ang_vel", "dof_pos", "dof_vel"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e12])
def test_a_broken_row_is_invalid_and_harms_no_other(key: str, value: float, make_engine: Make) -> None:
    clean, hurt = make_engine("", 5), make_engine("", 5)
    for engine in (clean, hurt):
        _drive(engine, 3, seed=8)
    getattr(hurt, key)[1] = value
    hurt.reset(_rows(5, 1))
    _drive(clean, 1, seed=9)
    _drive(hurt, 1, seed=9)
    assert hurt.invalid.tolist() == [False, True, False, False, False]
    others = [0, 2, 3, 4]
    a, b = clean.state_dict(), hurt.state_dict()
    assert all(torch.equal(a[name][others], b[name][others]) for name in a)
    assert torch.equal(hurt.root_pos[1], hurt.initial_root_pos)
    assert torch.equal(hurt.dof_pos[1], hurt.initial_dof_pos)
    assert not hurt.root_ang_vel[1].any()
    assert not hurt.site_wrench[1].any()
    hurt.reset(_rows(5, 0))
    assert hurt.invalid[1]
    hurt.reset(_rows(5, 1))
    assert not hurt.invalid.any()
    hurt.step()
    assert not hurt.invalid.any()


@pytest.mark.parametrize("substeps", [1, 3])
def test_a_row_that_starts_broken_is_not_swapped_for_a_healthy_one(substeps: int, make_engine: Make) -> None:
    engine = make_engine(FLOATER, 2, substeps=substeps)  # no sensor sees it, and with one substep no clock does
    engine.root_lin_vel[1] = float("nan")
    engine.reset(_all(2))
    engine.step()
    assert engine.invalid.tolist() == [False, True]


def test_a_row_that_lost_time_is_invalid(make_engine: Make) -> None:
    engine = make_engine(SLIDER, 2)
    engine.apply_efforts(torch.tensor([[1.0, 0.0], [float("nan"), 0.0]]))  # MuJoCo drops it and stops the row half way
    engine.step()
    assert engine.invalid.tolist() == [False, True]
    engine.apply_efforts(torch.zeros(2, 2))
    engine.step()
    assert not engine.invalid.any()


def test_full_contact_memory_is_an_error_that_names_the_setting(make_engine: Make, tmp_path: Path) -> None:
    fine = make_engine(pile("4M"), 2)
    fine.step()
    fine.check()
    tight = make_engine(pile("60K"), 2)
    with pytest.raises(EngineError, match='raise <size memory="120K"/>') as error:
        for _ in range(3):
            tight.step()  # MuJoCo gives up here or goes on with contacts left out, by version
        tight.check()
    assert str(tmp_path / "model_1.xml") in str(error.value)


def test_the_log_lies_in_its_folder_and_nowhere_else(
    make_engine: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    engine = make_engine("", 3, threads=2, log_dir=str(tmp_path / "run"))
    engine.dof_vel[2] = float("nan")
    engine.reset(_all(3))
    engine.step()
    engine.check()
    assert "QVEL" in (tmp_path / "run" / "MUJOCO_LOG.TXT").read_text()
    assert list((tmp_path / "here").iterdir()) == []


def test_an_effort_is_a_force_and_the_motor_limits_it(make_engine: Make) -> None:
    engine = make_engine(SLIDER, 3, control_dt=0.1, substeps=2)
    assert engine.effort_limit.tolist() == [5.0, 0.0]
    engine.apply_efforts(torch.tensor([[4.0, 0.0], [-20.0, 0.0], [0.0, 7.0]]))
    engine.step()
    expected = torch.tensor([4.0 / 2.0 * 0.1, -5.0 / 2.0 * 0.1, 0.0])  # v = F t / m, F at most 5 N
    torch.testing.assert_close(engine.dof_vel[:, 0], expected)
    assert engine.dof_vel[2, 1] == 0.0


def test_the_site_wrench_is_what_the_parent_exerts_on_the_body(make_engine: Make) -> None:
    engine = make_engine(PENDULUM, 2, sites=("pivot",))
    assert not engine.site_wrench.any()
    engine.step()
    expected = torch.tensor([0.0, 0.0, 2 * 9.81, 0.0, 0.0, 0.0])
    torch.testing.assert_close(engine.site_wrench[0, 0], expected, atol=1e-4, rtol=1e-4)
    engine.dof_pos.fill_(0.0)
    engine.reset(_rows(2, 0))
    assert not engine.site_wrench[0].any()
    assert engine.site_wrench[1].any()


def test_what_the_engine_does_not_offer_is_refused(make_engine: Make) -> None:
    with pytest.raises(EngineError, match="set sim_device=cpu"):
        make_engine("", 1, device="cuda:0")
    engine = make_engine("", 1)
    assert engine.capabilities() == ()
    with pytest.raises(EngineError, match="cannot set the model field 'friction'; fields it can set: none"):
        engine.set_model_field("friction", _all(1), torch.ones(1))


def test_close_ends_the_threads(make_engine: Make) -> None:
    engine = make_engine("", 4, threads=3)
    engine.step()
    assert any(thread.name.startswith("mujoco") for thread in threading.enumerate())
    engine.close()
    engine.close()
    assert not any(thread.name.startswith("mujoco") for thread in threading.enumerate())
