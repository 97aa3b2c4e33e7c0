"""From a validated configuration to the objects of a run. Nothing is decided here that a run could do without."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

import torch

from isaac_appo.config import ConfigError, RunConfig, fit_minibatch
from isaac_appo.env.task_env import TaskEnv, make_env
from isaac_appo.learn.learner import LearnerSettings
from isaac_appo.learn.learning_rate import LearningRateSettings
from isaac_appo.learn.loss import LossSettings
from isaac_appo.learn.target_kernels import RewardShaper
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.schedule.pipeline import PipelineSettings, worker_key
from isaac_appo.schedule.program import Free, Lockstep, Program, shard_sizes
from isaac_appo.sim.engine import EngineError
from isaac_appo.sim.registry import EngineChoice, resolve_engine


def choose_engine(config: RunConfig) -> EngineChoice:
    """The engine and the device of this run, and why. Errors: ConfigError."""
    try:
        return resolve_engine(config.sim.name, config.sim_device, config.rl_device)
    except EngineError as error:
        raise ConfigError([str(error)]) from error


def build_env(config: RunConfig, num_envs: int, seed: int, stagger: bool, threads: int, log_dir: str = "") -> TaskEnv:
    """The task's environments on the engine that the configuration names."""
    sim, engine = config.task.sim, choose_engine(config)
    return make_env(
        config.task.path,
        dict(config.task.env),
        sim_dt=sim.dt,
        substeps=sim.substeps,
        num_envs=num_envs,
        seed=seed,
        threads=config.sim.threads or threads,
        device=engine.device,
        engine=engine.name,
        stagger=stagger,
        log_dir=log_dir,
    )


def model_maker(config: RunConfig, num_obs: int, num_actions: int) -> Callable[[], ActorCritic]:
    """A function that builds the actor-critic; its initial weights are a function of the seed alone."""
    ppo = config.ppo
    network: Dict[str, Any] = dict(config.train.params.network)

    def make() -> ActorCritic:
        torch.manual_seed(config.seed)
        return ActorCritic(network, num_obs, num_actions, ppo.normalize_input, ppo.normalize_value)

    return make


def learner_settings(config: RunConfig) -> LearnerSettings:
    """The learner's settings, in its own words."""
    ppo = config.ppo
    batch = config.num_envs * ppo.horizon_length
    size, count, _ = fit_minibatch(batch, ppo.minibatch_size)
    shaper = ppo.reward_shaper
    advantage = config.advantage
    return LearnerSettings(
        epochs=ppo.mini_epochs,
        minibatch_size=size,
        minibatches=count,
        loss=LossSettings(
            ppo.e_clip, ppo.clip_value, ppo.critic_coef, ppo.entropy_coef, ppo.bounds_loss_coef, ppo.bound_loss_type
        ),
        targets=TargetSettings(ppo.gamma, ppo.tau, advantage.name == "vtrace", advantage.rho_bar, advantage.c_bar),
        shaper=RewardShaper(shaper.scale_value, shaper.shift_value, shaper.min_val, shaper.max_val, shaper.log_val),
        learning_rate=LearningRateSettings(
            initial=ppo.learning_rate,
            schedule=ppo.lr_schedule,
            per_minibatch=ppo.schedule_type == "legacy",
            kl_threshold=ppo.kl_threshold,
            min_lr=ppo.min_lr,
            max_lr=ppo.max_lr,
            total_updates=config.max_iterations,
        ),
        bootstrap_truncated=ppo.value_bootstrap,
        normalize_advantage=ppo.normalize_advantage,
        behaviour_anchor=config.loss.name == "behaviour",
        w_max=config.loss.w_max,
        max_grad_norm=ppo.grad_norm if ppo.truncate_grads else 0.0,
        weight_decay=ppo.weight_decay,
        shuffle=ppo.shuffle_minibatches,
        seed=config.seed,
    )


def build_workers(config: RunConfig, log_dir: str) -> List[TaskEnv]:
    """The training environments, one shard per worker."""
    threads, stagger = config.schedule.policy_threads, config.env.stagger_resets
    sizes = shard_sizes(config.num_envs, config.schedule.num_workers)
    return [build_env(config, n, worker_key(config.seed, w), stagger, threads, log_dir) for w, n in enumerate(sizes)]


def build_program(config: RunConfig, minibatches: int) -> Program:
    """The schedule as a program."""
    s, horizon = config.schedule, config.ppo.horizon_length
    shape: Dict[str, Any] = {
        "horizon": horizon,
        "epochs": config.ppo.mini_epochs,
        "minibatches": minibatches,
        "num_updates": config.max_iterations,
        "num_workers": s.num_workers,
    }
    if s.name != "free":
        return Lockstep(**shape, lag=s.lag)
    return Free(
        **shape,
        max_policy_lag=s.max_policy_lag,
        lead=s.max_lead_steps or 2 * s.broadcast_every * horizon,
        broadcast_every=s.broadcast_every,
        throttle=s.on_excess == "throttle",
    )


def pipeline_settings(config: RunConfig) -> PipelineSettings:
    """The pipeline's settings, in its own words."""
    schedule = config.schedule
    return PipelineSettings(
        executor=schedule.executor,
        policy_threads=schedule.policy_threads,
        learner_threads=schedule.learner_threads,
        seed=config.seed,
        clip_actions=config.ppo.clip_actions,
        max_nan_fraction=config.env.max_nan_fraction,
        on_excess=schedule.on_excess if schedule.name == "free" else "throttle",
    )
