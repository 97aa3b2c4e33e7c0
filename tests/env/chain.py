"""What tests of foreign environments share: the double's tasks, and a critic whose value is `x + 1`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple

import pytest
import torch
from omegaconf import OmegaConf
from torch import Tensor, nn

from isaac_appo.config.resolvers import RESOLVERS, register_resolvers
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.learn.learner import Learner
from isaac_appo.learn.target_kernels import RewardShaper
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.snapshot import PolicyBuffer
from isaac_appo.rollout.collector import Collector
from isaac_appo.rollout.slab import Slab
from isaac_appo.schedule.pipeline import Worker
from isaac_appo.schedule.program import Lockstep
from tests.helpers import NETWORK, learner_settings

DOUBLES = Path(__file__).parents[1] / "doubles"
ENV_CFG = {"episodeLength": 5, "fallAt": 3}


@pytest.fixture()
def tasks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Dict[str, Any]]:
    """The double's classes by name; the package is gone again afterwards."""
    monkeypatch.syspath_prepend(str(DOUBLES))
    for resolver in RESOLVERS:
        OmegaConf.clear_resolver(resolver)
    try:
        yield importlib.import_module("isaacgymenvs.tasks").isaacgym_task_map
    finally:
        register_resolvers()
        for name in [name for name in sys.modules if name.partition(".")[0] == "isaacgymenvs"]:
            del sys.modules[name]


def make_task(cls: Any, num_envs: int = 2, **env: Any) -> Any:
    cfg = {"env": {**ENV_CFG, "numEnvs": num_envs, **env}}
    return cls(cfg, rl_device="cpu", sim_device="cpu", graphics_device_id=-1, headless=True)


class KnownCritic(nn.Module):
    """Means 0, deviations 1, value `obs[0] + 1`."""

    def __init__(self) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(1))

    def forward(self, given: Dict[str, Tensor]) -> Tuple[Tensor, Tensor, Tensor, None]:
        obs = given["obs"]
        mu = self.mu.expand(len(obs), 1)
        return mu, torch.zeros_like(mu), obs[:, :1] + 1.0, None


def known_model() -> ActorCritic:
    model = ActorCritic(NETWORK, 2, 1, normalize_input=False, normalize_value=False)
    model.a2c_network = KnownCritic()
    return model


def collect(env: VecEnv, horizon: int = 10) -> Tuple[Slab, Collector]:
    """One slab."""
    shape = {"epochs": 1, "minibatches": 1, "num_updates": 1}
    worker = Worker(env, known_model(), Lockstep(horizon=horizon, lag=0, **shape), 1, True)
    collector = worker.collector
    for t in range(horizon):
        collector.act(0, t)
        collector.step(0, t)
    collector.bootstrap(0)
    return worker.slabs[0], collector


def targets(slab: Slab, stale: bool) -> Tensor:
    """Value targets `[T, N]` at gamma 1 and lambda 1: what an episode still pays, and the bootstrap."""
    settings = learner_settings(
        minibatch_size=slab.horizon * slab.num_envs,
        minibatches=1,
        shaper=RewardShaper(),
        targets=TargetSettings(1.0, 1.0),
    )
    model = known_model()
    learner = Learner(model, PolicyBuffer(model), [[slab]], settings)
    learner.load(0, lag=int(stale))
    learner.proximal(0)
    learner.targets(0)
    return learner.batch.time_major(learner.batch.returns)
