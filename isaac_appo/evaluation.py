"""Deterministic evaluation: one full episode in each environment, so that short episodes weigh no more than long."""

from __future__ import annotations

from typing import Callable, NamedTuple

import torch
from torch import Tensor

from isaac_appo.env.vec_env import VecEnv
from isaac_appo.policy.actor_critic import ActorCritic

CHECK_EVERY = 50
"""Steps between looks at whether every episode has ended."""

Agent = Callable[[Tensor], Tensor]
"""Observations ``[N, O]`` to actions ``[N, M]``."""
Watch = Callable[[int, Tensor], None]
"""Called after each step with its number from 0 and the returns ``[N]`` so far; what it raises ends the evaluation."""


class Evaluation(NamedTuple):
    """Returns of the first episode of each environment, without any shaping or bootstrap."""

    mean: float
    std: float
    low: float
    high: float
    mean_length: float
    episodes: int
    seed: int
    agent: str = "deterministic policy"

    def __str__(self) -> str:
        return (
            f"return {self.mean:.1f} +- {self.std:.1f} (min {self.low:.1f}, max {self.high:.1f}), "
            f"length {self.mean_length:.1f}, {self.episodes} episodes, one per environment, "
            f"{self.agent}, seed {self.seed}"
        )


def evaluate(model: ActorCritic, env: VecEnv, seed: int, clip_actions: bool = True) -> Evaluation:
    """Play the mean action for one episode in every environment of ``env``, which must be fresh and not staggered."""
    return play_episodes(mean_action(model, env, clip_actions), env, seed)


def mean_action(model: ActorCritic, env: VecEnv, clip_actions: bool = True) -> Agent:
    """The policy without its noise, as an agent for ``env``."""
    normalized = torch.zeros(env.num_envs, env.num_obs, device=env.device)

    def act(obs: Tensor) -> Tensor:
        mu = model(model.running_mean_std.normalize(obs, normalized)).mu
        return mu.clamp(-1.0, 1.0) if clip_actions else mu

    return act


@torch.no_grad()
def play_episodes(agent: Agent, env: VecEnv, seed: int, watch: Watch = lambda step, returns: None) -> Evaluation:
    """Play one episode in every environment of ``env``, which must be fresh and not staggered."""
    obs = env.reset()
    returns, lengths = torch.zeros(env.num_envs, device=obs.device), torch.zeros(env.num_envs, device=obs.device)
    running = torch.ones(env.num_envs, dtype=torch.bool, device=obs.device)
    for step in range(env.max_episode_length + 1):
        obs, reward, terminated, truncated = env.step(agent(obs))
        returns += torch.where(running, reward, torch.zeros_like(reward))
        lengths += running
        running &= ~(terminated | truncated)
        watch(step, returns)
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
