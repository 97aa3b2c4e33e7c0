"""The pipelines that the tests run on both layers: the fake one, which is everywhere, and CUDA where there is a GPU."""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch

from isaac_appo.bench.busy_env import BusyEnv
from isaac_appo.env.task_env import make_env
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.executors.device import CudaDevice, Device
from isaac_appo.schedule.pipeline import UpdateReport
from isaac_appo.schedule.program import Free, Lockstep, Program
from tests.helpers import learner_settings, make_model, pipeline_settings
from tests.schedule.fake_device import BIASES, FakeDevice

CUDA = pytest.param("cuda", marks=pytest.mark.gpu(physics=False))
LAYERS = ["fake", CUDA]
PHYSICS = ["Ant", "Cartpole"]
"""Tasks on mujoco_warp; where that is missing, and on the fake layer, the synthetic simulator stands for them."""


def device_of(layer: str, bias: str = "uniform") -> Device:
    """The layer itself."""
    return CudaDevice(torch.device("cuda:0")) if layer == "cuda" else FakeDevice(BIASES.index(bias))


def env_of(layer: str, task: str, num_envs: int, depth: int) -> VecEnv:
    """``task`` on a GPU's physics, or the synthetic simulator."""
    where = "cuda:0" if layer == "cuda" else "cpu"
    if layer == "cuda" and task and find_spec("mujoco_warp") is not None:
        return make_env(
            task, {"episodeLength": 21}, num_envs=num_envs, device=where, stagger=True, engine="mujoco_warp"
        )
    return BusyEnv(num_envs, torch.device(where), 64, depth, num_obs=6, num_actions=2)


def pipeline_of(
    layer: str,
    task: str = "",
    make: Any = DevicePipeline,
    lag: int = 1,
    num_updates: int = 10,
    free: Optional[Dict[str, Any]] = None,
    device: Optional[Device] = None,
    num_envs: int = 32,
    depth: int = 1,
    bias: str = "uniform",
    learner: Optional[Dict[str, Any]] = None,
    **settings: Any,
) -> Tuple[DevicePipeline, List[UpdateReport]]:
    """A pipeline of horizon 8 and where it reports."""
    reports: List[UpdateReport] = []
    changed = learner_settings(**{"minibatch_size": 2 * num_envs, **(learner or {})})
    shape = {"horizon": 8, "epochs": changed.epochs, "minibatches": changed.minibatches, "num_updates": num_updates}
    program: Program = Lockstep(**shape, lag=lag) if free is None else Free(**shape, **free)
    env = env_of(layer, task, num_envs, depth)

    def model() -> Any:
        return make_model(env.num_obs, env.num_actions).to(env.device)

    build = partial(make, [env], model, program, pipeline_settings(executor="cuda", **settings), changed)
    pipeline: DevicePipeline = build(reports.append, device=device or device_of(layer, bias))
    return pipeline, reports
