"""What is engine `isaacgym`'s own: calls, order of dofs, options, and what it refuses."""

from __future__ import annotations

from typing import Any, Callable, List

import pytest
import torch
from isaacgym import gymapi
from isaacgym.simulation import Double

import isaac_appo.sim.isaacgym as engine_module
from isaac_appo.sim.engine import EngineError, EngineSpec
from isaac_appo.sim.isaacgym import IsaacGymEngine
from isaac_appo.tasks.ant import Ant

from .test_contract import CONTRACT, SLIDER, Make, rows


@pytest.fixture()
def calls(monkeypatch: pytest.MonkeyPatch) -> List[str]:
    """Names of the calls that set or simulate, as they are made."""
    made: List[str] = []

    def spied(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def spy(*args: Any) -> Any:
            made.append(name)
            return call(*args)

        return spy

    for name in ("set_actor_root_state_tensor_indexed", "set_dof_state_tensor_indexed", "simulate"):
        monkeypatch.setattr(gymapi.Gym, name, spied(name, getattr(gymapi.Gym, name)))
    return made


def test_resets_are_sent_once_per_tensor_and_step_and_only_when_there_are_any(
    make_engine: Make, calls: List[str]
) -> None:
    engine, indexed = make_engine(), ["set_actor_root_state_tensor_indexed", "set_dof_state_tensor_indexed"]
    engine.reset(rows(4, 0, 1, 2, 3))
    engine.reset(rows(4, 2))
    engine.load_state_dict(engine.state_dict())
    assert calls == []
    engine.step()
    engine.step()
    engine.reset(rows(4, 1))
    engine.reset(rows(4, 3))
    engine.step()
    assert calls == [*indexed, "simulate", "simulate", *indexed, "simulate"]


def test_the_views_are_isaac_gyms_own_memory(make_engine: Make) -> None:
    engine = make_engine()
    tensors = {name: each.owned for name, each in engine._sim.tensors.items()}
    assert engine.root_pos.data_ptr() == tensors["root"].data_ptr()
    assert engine.dof_pos.data_ptr() == tensors["dof"].data_ptr()
    assert engine.site_wrench.data_ptr() == tensors["sensor"].data_ptr()


@pytest.mark.parametrize("mjcf", ["", SLIDER])
def test_dofs_go_by_name_whatever_their_order_in_isaac_gym(mjcf: str, make_engine: Make) -> None:
    results = []
    for reverse in (False, True):
        Double.reverse_dofs = reverse
        engine = make_engine("isaacgym", mjcf)
        names = engine._gym.get_asset_dof_names(engine._sim.assets[0])
        assert names == list(engine.dof_names)[:: -1 if reverse else 1]
        engine.dof_pos[2] += 0.2
        engine.reset(rows(4, 2))
        generator = torch.Generator().manual_seed(3)
        for _ in range(6):
            engine.apply_efforts(15.0 * (2.0 * torch.rand(4, len(names), generator=generator) - 1.0))
            engine.step()
        results.append({key: getattr(engine, key).clone() for key in CONTRACT})
    assert results[0]["dof_pos"].any()
    for key in CONTRACT:
        torch.testing.assert_close(results[0][key], results[1][key], msg=key)


def test_the_specification_becomes_isaac_gyms_parameters(make_engine: Make) -> None:
    physx = {"num_threads": 2, "contact_collection": 1, "max_gpu_contact_pairs": 99, "contact_offset": 0.5}
    options = {"physx": physx, "num_client_threads": 3, "headless": True, "graphics_device": 1}
    sim = make_engine(control_dt=0.03, substeps=3, options=options)._sim
    got = sim.params
    assert (got.dt, got.substeps, got.up_axis, got.use_gpu_pipeline) == (0.03, 3, gymapi.UP_AXIS_Z, False)
    assert (got.gravity.z, got.num_client_threads, sim.graphics) == (-9.81, 3, -1)
    assert (got.physx.num_threads, got.physx.max_gpu_contact_pairs, got.physx.contact_offset) == (2, 99, 0.5)
    assert got.physx.contact_collection is gymapi.ContactCollection.CC_LAST_SUBSTEP
    assert sim.groups == [0, 1, 2, 3]


def test_the_viewer_needs_a_device_and_may_be_closed(make_engine: Make) -> None:
    Double.viewer_closes_after = 2
    engine = make_engine(options={"headless": False, "graphics_device": 1})
    viewer = engine._viewer
    assert engine._sim.graphics == 1
    for _ in range(4):
        engine.step()
    assert viewer.frames == 2 and viewer.closed
    engine.close()


def test_a_second_simulation_is_refused_before_anything_is_built(make_engine: Make) -> None:
    engine = make_engine()
    engine.close()
    engine.close()
    with pytest.raises(EngineError, match=r"one simulation per process, and this one has made its own \(4 envs"):
        IsaacGymEngine(EngineSpec("no such file", 1, "cpu", 0.01, 1))
    assert len(engine_module._claims) == 1


@pytest.mark.parametrize(
    ("call", "result", "message"),
    [
        ("create_sim", None, "made no simulation"),
        ("load_asset", None, "importer does not read"),
        ("create_asset_force_sensor", -1, "no force sensor for site 'foot_1' on body 'foot_1'"),
        ("create_viewer", None, "opened no viewer"),
        ("prepare_sim", False, "prepare_sim"),
        ("get_asset_dof_names", ["a"], r"reads the dofs \['a'\], MuJoCo \['hip_1'"),
        ("refresh_dof_state_tensor", False, "refused refresh_dof_state_tensor"),
    ],
)
def test_what_isaac_gym_refuses_is_an_error(
    call: str, result: Any, message: str, make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gymapi.Gym, call, lambda *args: result)
    with pytest.raises(EngineError, match=message):
        make_engine(options={"headless": False})


def test_a_setter_that_is_refused_is_an_error(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = make_engine()
    monkeypatch.setattr(gymapi.Gym, "set_dof_state_tensor_indexed", lambda *args: False)
    with pytest.raises(EngineError, match="refused set_dof_state_tensor_indexed"):
        engine.step()


def test_limits_read_in_another_unit_are_an_error(make_engine: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    read = gymapi.Gym.get_asset_dof_properties

    def in_degrees(self: Any, asset: Any) -> Any:
        found = read(self, asset)
        found["lower"] *= 57.29578
        return found

    monkeypatch.setattr(gymapi.Gym, "get_asset_dof_properties", in_degrees)
    with pytest.raises(EngineError, match=r"lower limit of 'hip_1' is -0\.6981 in the file, .* reads -40\.0000"):
        make_engine()


def test_roots_that_are_not_where_they_were_put_are_an_error(
    make_engine: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = gymapi.Gym.create_actor

    def beside(self: Any, env: Any, asset: Any, pose: Any, *rest: Any) -> int:
        pose.p.x += 10.0
        return create(self, env, asset, pose, *rest)

    monkeypatch.setattr(gymapi.Gym, "create_actor", beside)
    with pytest.raises(EngineError, match="not in the frame of their env"):
        make_engine()


@pytest.mark.parametrize(
    ("bodies", "message"),
    [
        ('<body><freejoint/><geom size=".1" pos=".3 0 0"/></body>', "centre of mass is not at its frame's origin"),
        ('<body><freejoint/><geom size=".1"/></body><body pos="1 0 0"><geom size=".1"/></body>', "2 top bodies"),
    ],
)
def test_models_that_one_actor_cannot_be_are_refused(bodies: str, message: str, make_engine: Make) -> None:
    with pytest.raises(EngineError, match=message):
        make_engine("isaacgym", f"<mujoco><worldbody>{bodies}</worldbody></mujoco>")


def test_parts_of_the_ant_never_meet_and_those_of_another_model_may(make_engine: Make) -> None:
    from isaac_appo.sim.isaacgym_scene import read_model

    def collides(path: str) -> bool:
        return read_model(EngineSpec(path, 1, "cpu", 0.01, 1)).self_collides

    slider = make_engine("isaacgym", SLIDER).spec.model_path
    assert (collides(Ant.model_file), collides(slider)) == (False, True)
