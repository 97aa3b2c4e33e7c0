"""Any `VecTask` of IsaacGymEnvs as a vectorised environment of ours.

When a task resets what is done is not written down anywhere in the package: it follows from where the class calls
`reset_idx`, so it is looked up by class (`AUTORESET`), or stated with `env.autoreset`. A class that is not in the table
is taken as `next_step`, which is said, and checked once per update against the ages of the rows that end.
"""

from __future__ import annotations

from typing import Any, Dict, Mapping, Tuple

import torch
from torch import Tensor

from isaac_appo.env.vec_env import AUTORESET_MODES
from isaac_appo.env.vec_task import ForeignEnv
from isaac_appo.sim.engine import EngineError

__all__ = ["AUTORESET", "VecTaskEnv", "autoreset_of", "make_vec_task"]

_NEXT = "Ant Humanoid Anymal Cartpole FrankaCabinet FrankaCubeStack"
_NEXT_PRE = (
    "AllegroHand AllegroHandDextreme ShadowHand AllegroKukaBase AllegroKukaTwoArmsBase Trifinger BallBalance "
    "Quadcopter Ingenuity FactoryBase IndustRealBase"
)
AUTORESET: Dict[str, str] = {
    **dict.fromkeys(_NEXT.split(), "next_step"),
    **dict.fromkeys(_NEXT_PRE.split(), "next_step_pre"),
    "AnymalTerrain": "same_step",
    "HumanoidAMPBase": "manual",
}
"""By the name of a class or of a base of it."""


def autoreset_of(task: Any, stated: str = "auto") -> Tuple[str, str]:
    """The auto-reset convention of a task, and how it is known. Errors: EngineError for an unknown word."""
    if stated != "auto":
        if stated not in AUTORESET_MODES:
            raise EngineError(f"env.autoreset={stated}: no such convention. Use auto or {', '.join(AUTORESET_MODES)}")
        return stated, "as stated"
    for cls in type(task).__mro__:
        if cls.__name__ in AUTORESET:
            return AUTORESET[cls.__name__], f"what class {cls.__name__} does"
    return "next_step", f"assumed: class {type(task).__name__} is unknown here; env.autoreset=... states it"


class VecTaskEnv(ForeignEnv):
    """A `VecTask` behind `VecEnv`.

    Live buffers are copied before anything else happens. Observations may be a tensor or {"obs", "states"}. A
    `same_step` task loses its time-outs when it zeroes the ages before they are looked at (AnymalTerrain does), so they
    are worked out from the ages before the step. A `manual` task is reset here, after its last observations have been
    kept, which makes it `same_step` with `final_obs`. In a row whose values broke, the task is told to reset.

    Args:
        task: the `VecTask`.
        autoreset: a mode of `VecEnv`, or auto for the class's own.

    Errors: EngineError for several agents in an env and for observations that are neither.
    """

    def __init__(self, task: Any, autoreset: str = "auto") -> None:
        self.task = task
        mode, self.reason = autoreset_of(task, autoreset)
        self._manual = mode == "manual"
        self.autoreset = "same_step" if self._manual else mode
        if getattr(task, "num_agents", 1) != 1:
            raise EngineError(f"{self}: {task.num_agents} agents in each env; this trainer takes tasks of one agent")
        sizes = {"obs": int(task.num_obs), "action": int(task.num_actions)}
        if int(getattr(task, "num_states", 0)):
            sizes["states"] = int(task.num_states)
        device = torch.device(task.rl_device)
        super().__init__(int(task.num_envs), sizes, float(getattr(task, "clip_obs", float("inf"))), device)
        self.max_episode_length = int(task.max_episode_length)
        self._age = torch.zeros(self.num_envs, dtype=torch.int64, device=device)
        self._no_action = torch.zeros(self.num_envs, sizes["action"], device=device)
        self._started = False
        if self._manual:
            self.final_obs = torch.zeros_like(self.obs)
            self.final_states = None if self.states is None else torch.zeros_like(self.states)

    def __repr__(self) -> str:
        return type(self.task).__name__

    def describe(self) -> str:
        """One line: the convention, how it is known, and what a time-out bootstraps from."""
        boot = "of the last observation of the episode"
        if self.autoreset == "same_step" and not self._manual:
            boot = "of the observation before the last step, as rl_games does, because the last one is not returned"
        mode = "manual, reset by the adapter" if self._manual else self.autoreset
        return f"{self}: autoreset {mode} ({self.reason}); a time-out bootstraps from the value {boot}"

    def reset(self) -> Tensor:
        """See `VecEnv`. The first observations of a `VecTask` come from a step, which is taken with zero actions."""
        self.task.reset_buf[:] = 1
        if self._manual:
            self._write(self.task.reset_done()[0])
            self._done.zero_()
        else:
            if self.autoreset == "same_step" and self._started:  # its constructor has reset it once
                self.task.reset_idx(torch.arange(self.num_envs, device=self.task.reset_buf.device))
            self._advance(self._no_action)
        self._started = True
        for signal in (self.reward, self.terminated, self.truncated, self.invalid):
            signal.zero_()
        self.unstarted.copy_(self._done)
        return self.obs

    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `VecEnv`."""
        self._advance(actions_NA)
        return self.obs, self.reward, self.terminated, self.truncated

    def _advance(self, actions_NA: Tensor) -> None:
        task = self.task
        self._age.copy_(task.progress_buf)
        obs, reward, done, extras = task.step(actions_NA)
        self._write_signals(reward, done, self._time_outs(done, extras))
        self._write(obs)
        if self.autoreset == "next_step":
            self.reward.masked_fill_(self._before, 0.0)  # the action was simulated on the dead state, and thrown away
        if not self._manual:
            self._watch(task.progress_buf)
        for final, last in ((self.final_obs, self.obs), (self.final_states, self.states)):
            if final is not None and last is not None:
                final.copy_(last)
        self._finish()
        task.reset_buf.masked_fill_(self.invalid.to(task.reset_buf.device), 1)
        if self._manual:
            self._write(task.reset_done()[0])

    def _time_outs(self, done: Tensor, extras: Mapping[str, Any]) -> Any:
        """[N] flags, before they are taken together with done."""
        if self._manual and "terminate" in extras:
            return extras["terminate"] == 0
        time_outs = extras.get("time_outs")
        if self.autoreset != "same_step" or self._manual:
            return time_outs
        aged = self._age + 1 >= self.max_episode_length - 1
        return aged if time_outs is None else aged | (time_outs.to(self.device) != 0)

    def _write(self, returned: Any) -> None:
        obs = returned["obs"] if isinstance(returned, Mapping) else returned
        if not isinstance(obs, Tensor) or obs.shape != self.obs.shape:
            what = tuple(obs.shape) if isinstance(obs, Tensor) else type(obs).__name__
            raise EngineError(f"{self}: observation {what}, where a tensor {tuple(self.obs.shape)} is expected")
        self._write_obs(obs, returned.get("states") if isinstance(returned, Mapping) else None)

    def set_train_info(self, env_steps: int) -> None:
        """See `VecEnv`."""
        if hasattr(self.task, "set_train_info"):
            self.task.set_train_info(env_steps, None)

    def get_env_state(self) -> Any:
        """See `VecEnv`."""
        return self.task.get_env_state() if hasattr(self.task, "get_env_state") else None

    def set_env_state(self, state: Any) -> None:
        """See `VecEnv`."""
        if state is not None and hasattr(self.task, "set_env_state"):
            self.task.set_env_state(state)


def make_vec_task(
    task_cfg: Mapping[str, Any],
    num_envs: int,
    seed: int,
    sim_device: str,
    rl_device: str,
    graphics_device_id: int = -1,
    headless: bool = True,
    force_render: bool = False,
    autoreset: str = "auto",
) -> VecTaskEnv:
    """A task made by `isaacgymenvs.make` from the package's own composed task section.

    Errors: ConfigError if the package cannot be imported, EngineError for what the adapter refuses.
    """
    from omegaconf import OmegaConf

    from isaac_appo.config.packages import import_package

    tree = {**task_cfg, "env": {**task_cfg["env"], "numEnvs": num_envs}}
    task = import_package("isaacgymenvs").make(
        seed=seed,
        task=tree["name"],
        num_envs=num_envs,
        sim_device=sim_device,
        rl_device=rl_device,
        graphics_device_id=graphics_device_id,
        headless=headless,
        force_render=force_render,
        cfg=OmegaConf.create({"task": tree}),
    )
    return VecTaskEnv(task, autoreset)
