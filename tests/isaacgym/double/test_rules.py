"""The double enforces Isaac Gym's rules: each breach raises."""

from __future__ import annotations

import gc
from typing import Any, Tuple

import pytest
import torch
from isaacgym import gymapi, gymtorch

from isaac_appo.tasks.ant import Ant

N = 3


def params(**changes: Any) -> gymapi.SimParams:
    found = gymapi.SimParams()
    found.up_axis, found.gravity = gymapi.UP_AXIS_Z, gymapi.Vec3(0.0, 0.0, -9.81)
    for name, value in changes.items():
        setattr(found, name, value)
    return found


def unprepared() -> Tuple[gymapi.Gym, gymapi.Sim]:
    gym = gymapi.acquire_gym()
    sim = gym.create_sim(0, -1, gymapi.SIM_PHYSX, params())
    plane = gymapi.PlaneParams()
    plane.normal = gymapi.Vec3(0.0, 0.0, 1.0)
    gym.add_ground(sim, plane)
    folder, _, file = Ant.model_file.rpartition("/")
    asset = gym.load_asset(sim, folder, file, gymapi.AssetOptions())
    for n in range(N):
        env = gym.create_env(sim, gymapi.Vec3(), gymapi.Vec3(), 2)
        gym.create_actor(env, asset, gymapi.Transform(gymapi.Vec3(0.0, 0.0, 0.44)), "ant", n, 1)
    return gym, sim


@pytest.fixture()
def prepared() -> Tuple[gymapi.Gym, gymapi.Sim, torch.Tensor]:
    gym, sim = unprepared()
    gym.prepare_sim(sim)
    return gym, sim, gymtorch.wrap_tensor(gym.acquire_actor_root_state_tensor(sim))


def indices(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    return torch.tensor(values, dtype=dtype)


def test_acquiring_before_prepare_sim() -> None:
    gym, sim = unprepared()
    with pytest.raises(RuntimeError, match="before prepare_sim"):
        gym.acquire_dof_state_tensor(sim)
    gym.prepare_sim(sim)
    assert gymtorch.wrap_tensor(gym.acquire_dof_state_tensor(sim)).shape == (N * 8, 2)


def test_a_second_simulation() -> None:
    unprepared()
    with pytest.raises(RuntimeError, match="a second simulation"):
        unprepared()


def test_an_index_tensor_that_is_freed_before_the_step(prepared: Any) -> None:
    gym, sim, root = prepared
    kept = indices(1)
    gym.set_actor_root_state_tensor_indexed(sim, gymtorch.unwrap_tensor(root), gymtorch.unwrap_tensor(kept), 1)
    gym.simulate(sim)
    gym.set_actor_root_state_tensor_indexed(sim, gymtorch.unwrap_tensor(root), gymtorch.unwrap_tensor(indices(1)), 1)
    gc.collect()
    with pytest.raises(RuntimeError, match="freed before the step"):
        gym.simulate(sim)


def test_two_calls_for_one_tensor_in_a_step(prepared: Any) -> None:
    gym, sim, root = prepared
    kept, desc = indices(1), gymtorch.unwrap_tensor(root)
    gym.set_actor_root_state_tensor_indexed(sim, desc, gymtorch.unwrap_tensor(kept), 1)
    with pytest.raises(RuntimeError, match="a second call for the root tensor"):
        gym.set_actor_root_state_tensor_indexed(sim, desc, gymtorch.unwrap_tensor(kept), 1)
    gym.simulate(sim)
    gym.set_actor_root_state_tensor_indexed(sim, desc, gymtorch.unwrap_tensor(kept), 1)


def test_indices_of_64_bits(prepared: Any) -> None:
    gym, sim, root = prepared
    wide = indices(1, dtype=torch.int64)
    with pytest.raises(RuntimeError, match="must be int32"):
        gym.set_actor_root_state_tensor_indexed(sim, gymtorch.unwrap_tensor(root), gymtorch.unwrap_tensor(wide), 1)


def test_a_gpu_tensor_on_the_cpu_pipeline(prepared: Any) -> None:
    gym, sim, _ = prepared
    desc = gymtorch.unwrap_tensor(torch.zeros(N * 8))
    desc.device = 0
    with pytest.raises(RuntimeError, match="a GPU tensor on the CPU pipeline"):
        gym.set_dof_actuation_force_tensor(sim, desc)


def test_the_gpu_pipeline_needs_physics_on_the_gpu() -> None:
    with pytest.raises(RuntimeError, match=r"needs physx\.use_gpu"):
        gymapi.acquire_gym().create_sim(0, -1, gymapi.SIM_PHYSX, params(use_gpu_pipeline=True))


def test_a_step_without_fetch_and_refresh_shows_nothing_new(prepared: Any) -> None:
    gym, sim, root = prepared
    gym.refresh_actor_root_state_tensor(sim)
    start = root.clone()
    gym.simulate(sim)
    assert torch.equal(root, start)
    gym.refresh_actor_root_state_tensor(sim)
    assert torch.equal(root, start)  # the CPU pipeline shows what was fetched
    gym.fetch_results(sim, True)
    assert torch.equal(root, start)
    gym.refresh_actor_root_state_tensor(sim)
    assert not torch.equal(root, start)


def test_attributes_that_do_not_exist() -> None:
    with pytest.raises(AttributeError, match="no attribute 'sub_steps'"):
        params(sub_steps=3)
