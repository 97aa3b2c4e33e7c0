"""From a validated configuration to the objects of a run. Nothing is decided here that a run could do without."""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from typing import Any, Callable, Dict, List, Mapping, Optional

import torch

from isaac_appo.checkpoint import CheckpointError
from isaac_appo.config import ConfigError, RunConfig, fit_minibatch
from isaac_appo.config.errors import Finding
from isaac_appo.env.task_env import TaskEnv, make_env
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.learn.critic import CriticSettings
from isaac_appo.learn.learner import LearnerSettings
from isaac_appo.learn.learning_rate import LearningRateSettings
from isaac_appo.learn.loss import LossSettings
from isaac_appo.learn.target_kernels import RewardShaper
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.central_value import CentralValue
from isaac_appo.schedule.pipeline import PipelineSettings, worker_key
from isaac_appo.schedule.program import Free, Lockstep, Program, shard_sizes
from isaac_appo.sim.engine import EngineError
from isaac_appo.sim.registry import EngineChoice, physics_device, resolve_engine


def choose_engine(config: RunConfig) -> EngineChoice:
    """The engine and the device of this run, and why. Errors: ConfigError."""
    if config.task.package:
        return EngineChoice(config.task.package, config.rl_device, f"simulated on {config.sim_device} by the package")
    try:
        return resolve_engine(config.sim.name, config.sim_device, config.rl_device, config.pipeline)
    except EngineError as error:
        raise ConfigError([str(error)]) from error


def place_executor(config: RunConfig, engine: EngineChoice, asked: str) -> RunConfig:
    """The configuration with the executor for the engine's device; ``asked`` is what the user typed or ``auto``.

    Errors: ConfigError for ``cuda`` where the tensors are not on a GPU.
    """
    on_gpu = engine.device.startswith("cuda")
    if asked == "auto" and on_gpu:
        return replace(config, schedule=replace(config.schedule, executor="cuda"))
    if asked == "cuda" and not on_gpu:
        rule = f"there is no GPU to enqueue on, as {engine}"
        raise ConfigError([Finding("schedule.executor", "cuda", rule, "Use schedule.executor=auto")])
    return config


def set_numerics(config: RunConfig, device: str) -> None:
    """Process-wide switches of torch: TensorFloat-32 products on a GPU, or deterministic kernels in full precision."""
    if config.torch_deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # what deterministic products need, says torch
    torch.use_deterministic_algorithms(config.torch_deterministic)
    tf32 = device.startswith("cuda") and not config.torch_deterministic
    torch.set_float32_matmul_precision("high" if tf32 else "highest")


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
        engine_options=ENGINE_OPTIONS.get(engine.name, lambda config: {})(config),
    )


def isaacgym_options(config: RunConfig) -> Dict[str, Any]:
    """What `isaac_appo.sim.isaacgym_scene.build_scene` reads from `EngineSpec.options`."""
    physics = physics_device(config.sim_device)
    given = {key: value for key, value in asdict(config.task.sim.physx).items() if value is not None}
    names = ("num_threads", "solver_type", "num_subscenes")
    physx = {**{name: getattr(config, name) for name in names}, **given, "use_gpu": physics != "cpu"}
    return {
        "compute_device": 0 if physics == "cpu" else int(physics.rpartition(":")[2]),
        "graphics_device": config.graphics_device_id,
        "headless": config.headless,
        "num_client_threads": config.task.sim.num_client_threads,
        "physx": physx,
    }


ENGINE_OPTIONS: Dict[str, Callable[[RunConfig], Dict[str, Any]]] = {
    "isaacgym": isaacgym_options,
    "mujoco_warp": lambda config: {"nconmax": config.sim.nconmax, "njmax": config.sim.njmax},
}
"""`EngineSpec.options` of the engines that have any."""


def build_package_env(config: RunConfig, num_envs: int, seed: int) -> VecEnv:
    """The environments of a task that another package brings; the one simulation of this process."""
    from isaac_appo.env.isaacgymenvs import make_vec_task

    return make_vec_task(
        config.task.tree,
        num_envs=num_envs,
        seed=seed,
        sim_device=config.sim_device,
        rl_device=config.rl_device,
        graphics_device_id=config.graphics_device_id,
        headless=config.headless,
        force_render=config.force_render,
        autoreset=config.env.autoreset,
    )


def model_maker(config: RunConfig, num_obs: int, num_actions: int, num_states: int = 0) -> Callable[[], ActorCritic]:
    """A function that builds the actor-critic on the run's device; its initial weights follow from the seed alone.

    Errors: ConfigError for an asymmetric critic without states to see.
    """
    ppo, device = config.ppo, choose_engine(config).device
    critic = ppo.central_value_config
    if critic is not None and not num_states:
        path = "train.params.config.central_value_config"
        rule = f"needs states, and task {config.task.name} gives none (task.env may have a switch for them)"
        raise ConfigError([Finding(path, "(set)", rule, f"Use {path}=null")])
    network: Dict[str, Any] = dict(config.train.params.network)

    def make() -> ActorCritic:
        torch.manual_seed(config.seed)
        switches = (ppo.normalize_input, ppo.normalize_value)
        central: Optional[CentralValue] = None
        if critic is not None:
            central = CentralValue(critic.network, num_states, num_actions, critic.normalize_input, ppo.normalize_value)
        model = ActorCritic(network, num_obs, num_actions, *switches, central).to(device)
        model.mixed_precision = ppo.mixed_precision
        return model

    return make


def restore_weights(model: ActorCritic, state: Mapping[str, Any], task: str) -> None:
    """Weights and statistics of any rl_games or isaac_appo checkpoint. Errors: CheckpointError if it does not fit."""
    if "model" not in state:
        raise CheckpointError(f"the checkpoint holds no 'model' but {', '.join(map(str, state)) or 'nothing'}")
    try:
        model.load_saved(state["model"], state.get("assymetric_vf_nets"))
    except RuntimeError as error:
        raise CheckpointError(
            f"the checkpoint's network does not fit train.params.network and task={task}: {error}"
        ) from error


def learner_settings(config: RunConfig) -> LearnerSettings:
    """The learner's settings, in its own words."""
    ppo = config.ppo
    critic_coef = 0.0 if ppo.central_value_config is not None and not ppo.use_experimental_cv else ppo.critic_coef
    batch = config.num_envs * ppo.horizon_length
    size, count, _ = fit_minibatch(batch, ppo.minibatch_size)
    shaper = ppo.reward_shaper
    advantage = config.advantage
    return LearnerSettings(
        epochs=ppo.mini_epochs,
        minibatch_size=size,
        minibatches=count,
        loss=LossSettings(
            ppo.e_clip, ppo.clip_value, critic_coef, ppo.entropy_coef, ppo.bounds_loss_coef, ppo.bound_loss_type
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
        critic=_critic_settings(config),
    )


def _critic_settings(config: RunConfig) -> Optional[CriticSettings]:
    critic, ppo = config.ppo.central_value_config, config.ppo
    if critic is None:
        return None
    rate = LearningRateSettings(
        critic.learning_rate, critic.lr_schedule, False, ppo.kl_threshold, ppo.min_lr, ppo.max_lr, config.max_iterations
    )
    grad_norm = critic.grad_norm if critic.truncate_grads else 0.0
    return CriticSettings(rate, critic.e_clip, critic.clip_value, grad_norm, critic.weight_decay)


def build_workers(config: RunConfig, log_dir: str) -> List[VecEnv]:
    """The training environments, one shard per worker."""
    if config.task.package:
        return [build_package_env(config, config.num_envs, config.seed)]
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
        graphs=schedule.graphs,
    )
