"""Who acts: a trained policy, nobody (zero actions), or chance."""

from __future__ import annotations

from typing import Any, Dict, Mapping

import torch

from isaac_appo.build import model_maker, restore_weights
from isaac_appo.config import RunConfig
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.evaluation import Agent, mean_action
from isaac_appo.policy.actor_critic import ActorCritic

AGENTS: Dict[str, str] = {
    "trained": "deterministic policy",
    "zero": "zero actions",
    "random": "uniformly random actions",
}
"""Name and what a result says about it."""


def load_model(
    config: RunConfig, state: Mapping[str, Any], num_obs: int, num_actions: int, num_states: int = 0
) -> ActorCritic:
    """The actor-critic of any rl_games or isaac_appo checkpoint. Errors: CheckpointError if it does not fit."""
    model = model_maker(config, num_obs, num_actions, num_states)()
    restore_weights(model, state, config.task.name)
    return model


def make_agent(name: str, config: RunConfig, state: Mapping[str, Any], env: VecEnv) -> Agent:
    """The agent `name` of AGENTS for `env`; only "trained" reads `state`. Errors: CheckpointError."""
    if name == "trained":
        model = load_model(config, state, env.num_obs, env.num_actions, env.num_states).to(env.device)
        return mean_action(model, env, config.ppo.clip_actions)
    actions = torch.zeros(env.num_envs, env.num_actions, device=env.device)
    if name == "zero":
        return lambda obs: actions
    generator = torch.Generator(env.device).manual_seed(config.eval.seed)
    return lambda obs: actions.uniform_(-1.0, 1.0, generator=generator)
