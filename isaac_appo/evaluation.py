"""Deterministic evaluation: one full episode in each environment, so that short episodes weigh no more than long."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from isaac_appo.env.vec_env import VecEnv
from isaac_appo.policy.actor_critic import ActorCritic

CHECK_EVERY = 50
"""Steps between looks at whether every episode has ended."""


class Evaluation(NamedTuple):
    """Returns of the first episode of each environment, without any shaping or bootstrap."""

    mean: float
    std: float
    low: float
    high: float
    mean_length: float
    episodes: int
    seed: int

    def __str__(self) -> str:
        return (
            f"return {self.mean:.1f} +- {self.std:.1f} (min {self.low:.1f}, max {self.high:.1f}), "
            f"length {self.mean_length:.1f}, {self.episodes} episodes, one per environment, "
            f"deterministic policy, seed {self.seed}"
        )


@torch.no_grad()
def evaluate(model: ActorCritic, env: VecEnv, seed: int, clip_actions: bool = True) -> Evaluation:
    """Play the mean action for one episode in every environment of ``env``, which must be fresh and not staggered."""
    obs = env.reset()
    normalized = torch.zeros_like(obs)
    returns, lengths = torch.zeros(env.num_envs, device=obs.device), torch.zeros(env.num_envs, device=obs.device)
    running = torch.ones(env.num_envs, dtype=torch.bool, device=obs.device)
    for step in range(env.max_episode_length + 1):
        action = _mean_action(model, obs, normalized, clip_actions)
        obs, reward, terminated, truncated = env.step(action)
        returns += torch.where(running, reward, torch.zeros_like(reward))
        lengths += running
        running &= ~(terminated | truncated)
        if step % CHECK_EVERY == 0 and not bool(running.any()):
            break
    std = float(returns.std(unbiased=False))
    return Evaluation(
        float(returns.mean()),
        std,
        float(returns.min()),
        float(returns.max()),
        float(lengths.mean()),
        env.num_envs,
        seed,
    )


def _mean_action(model: ActorCritic, obs: Tensor, normalized: Tensor, clip_actions: bool) -> Tensor:
    mu = model(model.running_mean_std.normalize(obs, normalized)).mu
    return mu.clamp(-1.0, 1.0) if clip_actions else mu
