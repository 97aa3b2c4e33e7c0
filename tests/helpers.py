"""Small pipelines that several test folders build."""

from __future__ import annotations

import random
import time
from functools import partial
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple

import torch
from torch import Tensor

from isaac_appo.env.task_env import make_env
from isaac_appo.env.vec_env import Space, VecEnv
from isaac_appo.learn.learner import LearnerSettings
from isaac_appo.learn.learning_rate import LearningRateSettings
from isaac_appo.learn.loss import LossSettings
from isaac_appo.learn.target_kernels import RewardShaper
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.executors.device import Device
from isaac_appo.schedule.pipeline import Pipeline, PipelineSettings, UpdateReport, worker_key
from isaac_appo.schedule.program import Free, Lockstep, Program, shard_sizes

NETWORK: Dict[str, Any] = {
    "name": "actor_critic",
    "separate": False,
    "space": {
        "continuous": {
            "mu_activation": "None",
            "sigma_activation": "None",
            "mu_init": {"name": "default"},
            "sigma_init": {"name": "const_initializer", "val": 0},
            "fixed_sigma": True,
        }
    },
    "mlp": {
        "units": [16, 16],
        "activation": "elu",
        "initializer": {"name": "default"},
        "regularizer": {"name": "None"},
    },
}


def make_model(num_obs: int, num_actions: int, seed: int = 0, value: bool = True) -> ActorCritic:
    """A small actor-critic with initial weights that follow from ``seed``."""
    torch.manual_seed(seed)
    return ActorCritic(NETWORK, num_obs, num_actions, normalize_input=True, normalize_value=value)


def learner_settings(**changes: Any) -> LearnerSettings:
    """Settings of a learner for 32 envs and horizon 8; ``changes`` replaces fields."""
    settings = LearnerSettings(
        epochs=2,
        minibatch_size=64,
        minibatches=4,
        loss=LossSettings(0.2, True, 2.0, 0.001, 1e-4, "bound"),
        targets=TargetSettings(0.99, 0.95),
        shaper=RewardShaper(scale=0.1),
        learning_rate=LearningRateSettings(3e-4, "adaptive", True, 0.008, 1e-6, 1e-2, 100),
        bootstrap_truncated=True,
        normalize_advantage=True,
        behaviour_anchor=False,
        w_max=2.0,
        max_grad_norm=1.0,
        weight_decay=0.0,
        shuffle=False,
        seed=3,
    )
    return settings._replace(**changes)


def pipeline_settings(**changes: Any) -> PipelineSettings:
    """Settings of a pipeline; ``changes`` replaces fields."""
    return PipelineSettings("inline", 1, 1, 3, True, 0.01)._replace(**changes)


def cartpole_pipeline(
    on_boundary: Callable[[UpdateReport], None] = lambda report: None,
    learner: Optional[Dict[str, Any]] = None,
    lag: int = 1,
    num_updates: int = 10,
    num_workers: int = 1,
    free: Optional[Dict[str, Any]] = None,
    device: Optional[Device] = None,
    make: Any = DevicePipeline,
    **settings: Any,
) -> Pipeline:
    """A Cartpole pipeline of 32 envs and horizon 8 whose episodes are short, so that dead rows and time-outs abound.

    ``free`` holds the fields of a :class:`Free` program; without it the schedule is lockstep. With ``device`` it is a
    pipeline of the class ``make`` on that device.
    """
    s = pipeline_settings(**settings)
    changed = learner_settings(**{"seed": s.seed, **(learner or {})})
    shape = {"horizon": 8, "epochs": changed.epochs, "minibatches": changed.minibatches, "num_updates": num_updates}
    program: Program
    if free is None:
        program = Lockstep(**shape, num_workers=num_workers, lag=lag)
    else:
        program = Free(**shape, num_workers=num_workers, **{"lead": 16, **free})
    envs = [
        make_env("Cartpole", {"episodeLength": 21}, num_envs=n, seed=worker_key(s.seed, w), stagger=True)
        for w, n in enumerate(shard_sizes(32, num_workers))
    ]
    model = partial(make_model, envs[0].num_obs, envs[0].num_actions, s.seed)
    if device is None:
        return Pipeline(envs, model, program, s, changed, on_boundary)
    pipeline: Pipeline = make(envs, model, program, s, changed, on_boundary, device=device)
    return pipeline


def with_random_sleeps(pipeline: Pipeline, seed: int, longest_s: float = 0.003) -> None:
    """Make operations of both streams start late, at random."""
    generator = random.Random(seed)
    collectors = [(w.collector, ("step", "bootstrap")) for w in pipeline.workers]
    for owner, names in (*collectors, (pipeline.learner, ("minibatch", "targets"))):
        for name in names:
            setattr(owner, name, _late(getattr(owner, name), generator, longest_s))


def _late(function: Callable[..., None], generator: random.Random, longest_s: float) -> Callable[..., None]:
    def late(*args: Any) -> None:
        time.sleep(generator.random() * longest_s)
        function(*args)

    return late


def weights(pipeline: Pipeline) -> Tensor:
    """Everything that a version is, as bytes."""
    return pipeline.learner.policy.bytes.clone()


class ScriptedEnv(VecEnv):
    """An env whose observation is ``[age, env, 1]`` and whose ends are scripted: what collectors are tested with.

    Args:
        ends: ``(step, env) -> "terminated" | "truncated" | "invalid"``, steps counted from 0.
    """

    autoreset = "next_step"
    host_synchronous = False
    max_episode_length = 1000

    def __init__(self, num_envs: int, ends: Dict[Tuple[int, int], str], reward: float = 1.0) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.spaces = {"obs": Space((3,), -10.0, 10.0), "action": Space((2,), -1.0, 1.0)}
        self.ends, self.pay, self.steps = ends, reward, 0
        self.obs = torch.zeros(num_envs, 3)
        self.obs[:, 1], self.obs[:, 2] = torch.arange(num_envs), 1.0
        self.reward = torch.zeros(num_envs)
        self.terminated, self.truncated, self.invalid = (torch.zeros(num_envs, dtype=torch.bool) for _ in range(3))
        self.seen: List[Tensor] = []

    def reset(self) -> Tensor:
        self.obs[:, 0] = 0.0
        return self.obs

    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        self.seen.append(actions_NA.clone())
        fresh = self.terminated | self.truncated
        self.obs[:, 0] = torch.where(fresh, torch.zeros(()), self.obs[:, 0] + 1.0)
        self.reward.copy_(torch.where(fresh, torch.zeros(()), torch.full((), self.pay)))
        for flag in (self.terminated, self.truncated, self.invalid):
            flag.zero_()
        for env, kind in self._ends_now():
            getattr(self, kind)[env] = True
            if kind == "invalid":
                self.terminated[env], self.reward[env] = True, 0.0
        self.steps += 1
        return self.obs, self.reward, self.terminated, self.truncated

    def _ends_now(self) -> Iterator[Tuple[int, str]]:
        return ((env, kind) for (step, env), kind in self.ends.items() if step == self.steps)

    def state_dict(self) -> Dict[str, Tensor]:
        return {"obs": self.obs.clone(), "steps": torch.tensor(self.steps)}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        self.obs.copy_(state["obs"])
        self.steps = int(state["steps"])

    def close(self) -> None:
        pass


def can_film() -> bool:
    """Whether this machine has what a video needs: the encoder, and EGL or OSMesa."""
    from isaac_appo.play.camera import check_camera
    from isaac_appo.play.video import VideoError

    try:
        check_camera()
    except VideoError:
        return False
    return True
