"""An environment of legged_gym, or of rsl_rl's older kind, as a vectorised environment of ours.

Its `step(actions)` returns `(obs, privileged_obs, rewards, dones, infos)`, with what is done reset in the same step.
`infos["time_outs"]` is written only when some env is reset: in all other steps it is the one of an earlier step. So a
time-out counts only beside done. The last observation of an episode is thrown away, so that a time-out bootstraps from
the value of the observation before the step, as rsl_rl and rl_games do.

It is given to the trainer by its maker, in Python; see `docs/external_envs.md`.
"""

from __future__ import annotations

from typing import Any, Tuple

import torch
from torch import Tensor

from isaac_appo.env.vec_task import ForeignEnv

__all__ = ["LeggedGymEnv"]


class LeggedGymEnv(ForeignEnv):
    """An env with rsl_rl's attributes: num_envs, num_obs, num_privileged_obs, num_actions, device,
    max_episode_length, episode_length_buf, reset_idx.

    Privileged observations become "states". With `stagger` the first episodes start at random ages, as rsl_rl's
    `init_at_random_ep_len` does; the draw is torch's.
    """

    autoreset = "same_step"

    def __init__(self, env: Any, stagger: bool = True) -> None:
        self.env, self._stagger = env, stagger
        sizes = {"obs": int(env.num_obs), "action": int(env.num_actions)}
        if env.num_privileged_obs:
            sizes["states"] = int(env.num_privileged_obs)
        super().__init__(int(env.num_envs), sizes, float("inf"), torch.device(env.device))
        self.max_episode_length = int(env.max_episode_length)
        self._no_action = torch.zeros(self.num_envs, sizes["action"], device=self.device)
        self._started = False

    def __repr__(self) -> str:
        return type(self.env).__name__

    def describe(self) -> str:
        """One line: the convention, and what a time-out bootstraps from."""
        return f"{self}: autoreset same_step; a time-out bootstraps from the value of the observation before the step"

    def reset(self) -> Tensor:
        """See `VecEnv`: resets all and takes a step with zero actions, as legged_gym's own `reset` does."""
        self.env.reset_idx(torch.arange(self.num_envs, device=self.device))
        self.step(self._no_action)
        if self._stagger and not self._started:
            ages = torch.randint_like(self.env.episode_length_buf, high=self.max_episode_length)
            self.env.episode_length_buf = ages
        self._started = True
        self.unstarted.zero_()
        return self.obs

    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `VecEnv`."""
        obs, privileged, reward, done, infos = self.env.step(actions_NA)
        self._write_signals(reward, done, infos.get("time_outs"))
        self._write_obs(obs, privileged)
        self._watch(self.env.episode_length_buf)
        self._finish()
        return self.obs, self.reward, self.terminated, self.truncated
