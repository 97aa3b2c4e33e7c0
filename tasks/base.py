"""What a task is: the efforts its actions mean, how an episode starts, and what is observed and rewarded.

Shape letters: N envs, O observation values, M actions, D dofs, A free roots.
"""

from __future__ import annotations

import abc
import os
from typing import Any, ClassVar, Dict, Mapping, Tuple

import torch
from torch import Tensor

from isaac_appo.kernels import launch, wp
from isaac_appo.sim.engine import Engine, EngineError
from isaac_appo.tasks.reset_kernels import start_episodes

__all__ = ["Task", "asset"]


def asset(file: str) -> str:
    """Absolute path of a model file of ours."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "assets", file)


class Task(abc.ABC):
    """One task on one engine. It owns the tensors of a step and fills them by kernels.

    A subclass sets the class attributes and writes `_efforts` and `observe`.

    Class attributes:
        name, num_obs (O), num_actions (M); model_file: MJCF file; sites: sites whose wrench it reads.
        dof_names: the dofs that it expects of the engine, in order.
        obs_names, action_names: what each observation and action is, in order.
        defaults: every key of `task.env` with its default. A key whose default is an int takes integers only.
        positive: the keys that must be above zero.
        pos_spread, vel_spread: half widths of the draws of dof position and velocity at a reset.

    Attributes:
        cfg: `defaults` with the user's values on top.
        actions [N, M]: the clipped actions of this step. obs [N, O], reward [N] float32; terminated [N] bool.
        fresh [N] bool: rows that start an episode in this step.
    """

    name: ClassVar[str]
    num_obs: ClassVar[int]
    num_actions: ClassVar[int]
    model_file: ClassVar[str]
    sites: ClassVar[Tuple[str, ...]] = ()
    dof_names: ClassVar[Tuple[str, ...]]
    obs_names: ClassVar[Tuple[str, ...]]
    action_names: ClassVar[Tuple[str, ...]]
    defaults: ClassVar[Dict[str, float]]
    positive: ClassVar[Tuple[str, ...]] = ("episodeLength", "clipActions", "clipObservations")
    pos_spread: ClassVar[float]
    vel_spread: ClassVar[float]

    def __init__(self, engine: Engine, cfg: Mapping[str, float], seed: int) -> None:
        """Build on an engine made for this task. `cfg` holds every key of `defaults` (see `registry.make_task`)."""
        if engine.dof_names != self.dof_names:
            raise EngineError(f"task {self.name} expects the dofs {self.dof_names}, the model has {engine.dof_names}")
        self.engine = engine
        self.cfg = dict(cfg)
        self.seed = seed
        self.num_envs = engine.num_envs
        self.device = engine.device
        self.episode_length = int(cfg["episodeLength"])
        n, device = self.num_envs, self.device
        self.actions = torch.zeros(n, self.num_actions, device=device)
        self.efforts = torch.zeros(n, len(self.dof_names), device=device)
        self.obs = torch.zeros(n, self.num_obs, device=device)
        self.reward = torch.zeros(n, device=device)
        self.terminated = torch.zeros(n, dtype=torch.bool, device=device)
        self.fresh = torch.zeros(n, dtype=torch.bool, device=device)
        own = ("actions", "efforts", "obs", "reward", "terminated", "fresh")
        theirs = ["root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench"]
        theirs += ["initial_root_pos", "initial_root_quat", "initial_dof_pos", "dof_lower", "dof_upper"]
        self.wp = {key: wp.from_torch(getattr(self, key)) for key in own}
        self.wp.update({key: wp.from_torch(getattr(engine, key)) for key in theirs})

    def apply(self, actions: Tensor) -> None:
        """Clip actions [N, M] to ±clipActions and hand the efforts they mean to the engine."""
        clip = self.cfg["clipActions"]
        torch.clamp(actions, -clip, clip, out=self.actions)
        self._efforts()
        self.engine.apply_efforts(self.efforts)

    @abc.abstractmethod
    def _efforts(self) -> None:
        """Fill `efforts` [N, D] in N·m (N) from `actions`."""

    def reset(self, clock: Any) -> None:
        """Start an episode in the rows under `fresh`; `clock`, a Warp array [1] int64 that counts the env's steps,
        numbers the draws."""
        w = self.wp
        inputs = [w["fresh"], self.seed, clock, self.pos_spread, self.vel_spread]
        inputs += [w[key] for key in ("initial_root_pos", "initial_root_quat", "initial_dof_pos")]
        inputs += [w["dof_lower"], w["dof_upper"]]
        outputs = [w[key] for key in ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel")]
        launch(start_episodes, self.num_envs, inputs=inputs, outputs=outputs, device=str(self.device))
        self.engine.reset(self.fresh)

    @abc.abstractmethod
    def observe(self) -> None:
        """Fill `obs`, `reward` and `terminated` from the engine's state: one kernel."""

    def saved(self) -> Dict[str, Tensor]:
        """The task's own memory between steps, not copied: what a checkpoint must hold."""
        return {}
