"""What a run builds, before it is built: layers, streams, devices, buffers to the byte, and logging hooks.

Sizes are not formulas of their own: slabs and batch are laid out by their classes on PyTorch's ``meta`` device, which
has shapes and no memory, and the policy by its own byte buffer.
"""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, NamedTuple

import torch
from torch import Tensor

from isaac_appo.build import build_program, choose_engine, model_maker
from isaac_appo.config import RunConfig, fit_minibatch
from isaac_appo.learn.batch import Batch
from isaac_appo.policy.snapshot import PolicyBuffer
from isaac_appo.rollout.slab import Slab
from isaac_appo.schedule.program import LEARNER, Lockstep, Program, policy_name, shard_sizes
from isaac_appo.sim.registry import EngineChoice
from isaac_appo.tasks.registry import task_class
from isaac_appo.topology.estimate import predict

Spec = Dict[str, Any]

_META = torch.device("meta")
_METRICS = ["episode return and length", "losses, entropy, KL", "lag and row accounts", "env steps per second"]


class Group(NamedTuple):
    """Tensors that are allocated once and stay where they are."""

    name: str
    holds: str
    bytes: int
    device: str = "cpu"


class Layout(NamedTuple):
    """The sizes of a run, read off its own classes."""

    program: Program
    slabs: List[Slab]
    """One of each worker; every worker has ``program.num_slabs`` of them."""
    batch: Batch
    policy: PolicyBuffer


def layout_of(config: RunConfig) -> Layout:
    """Lay the run out; only one small copy of the policy is allocated."""
    task, horizon = task_class(config.task.path), config.ppo.horizon_length
    size, count, _ = fit_minibatch(config.num_envs * horizon, config.ppo.minibatch_size)
    program = build_program(config, count)
    shards = shard_sizes(config.num_envs, program.num_workers)
    slabs = [Slab(horizon, n, task.num_obs, task.num_actions, _META) for n in shards]
    batch = Batch(horizon, config.num_envs, task.num_obs, task.num_actions, size, count, _META)
    policy = PolicyBuffer(model_maker(config, task.num_obs, task.num_actions)())
    return Layout(program, slabs, batch, policy)


def groups_of(layout: Layout) -> List[Group]:
    """Every group of persistent tensors that grows with the run's settings, its size exact."""
    program, policy = layout.program, layout.policy
    slab_bytes = sum(_bytes(slab.tensors()) for slab in layout.slabs)
    horizon, workers, parameters = layout.batch.horizon, program.num_workers, policy.parameters.numel()
    targets = 4 * layout.batch.num_envs * ((horizon + 1) + 3 * horizon)
    ring = f"{workers} worker{'s' * (workers > 1)} x {program.num_slabs} slabs of {horizon} steps"
    return [
        Group("slabs", ring, program.num_slabs * slab_bytes),
        Group("batch", f"{layout.batch.count} minibatches of {layout.batch.size:,} rows", _bytes(vars(layout.batch))),
        Group("targets", "values, weights, value targets, advantages", targets),
        Group("policy buffers", f"the learner's and {workers} acting", (1 + workers) * policy.bytes.numel()),
        Group("snapshots", f"{program.num_snapshots} published versions", program.num_snapshots * policy.bytes.numel()),
        Group("optimizer", f"gradient and two moments of {parameters:,} parameters", 3 * 4 * parameters),
    ]


def blueprint_of(config: RunConfig) -> Spec:
    """The specification of a run as plain containers. Raises ConfigError for a device that no engine serves."""
    engine = choose_engine(config)
    layout = layout_of(config)
    groups = [group._replace(device=engine.device) for group in groups_of(layout)]
    return {
        "task": config.task.name,
        "algorithm": "APPO",
        "policy": "on-policy",
        "placement": "cpu-native" if engine.device == "cpu" else "gpu-native",
        "process_topology": _topology(config, layout.program),
        "rollout_worker_layer": _rollout(config, layout, engine),
        "experience_buffer_storage_layer": _buffer(layout, groups[0]),
        "learner_optimizer_layer": _learner(config, layout, engine.device),
        "evaluation_logging_hook_layer": {"metrics": _METRICS, "hooks": _hooks(config)},
        "tensor_groups": [group._asdict() for group in groups],
        "total_bytes": sum(group.bytes for group in groups),
    }


def _topology(config: RunConfig, program: Program) -> Spec:
    s = config.schedule
    shards = shard_sizes(config.num_envs, program.num_workers)
    role = "rollout worker and policy worker"
    streams = [(policy_name(w), role, envs, s.policy_threads) for w, envs in enumerate(shards)]
    streams.append((LEARNER, "learner", 0, s.learner_threads))
    lag = predict(config)
    return {
        "kind": "single-process",
        "streams": [dict(zip(("name", "role", "envs", "torch_threads"), stream)) for stream in streams],
        "executor": s.executor,
        "communication": "shared tensors and events; no pipes, sockets or serialisation",
        "schedule": s.name,
        "lag": f"{lag.low}" if lag.mean is not None else f"{lag.low}..{lag.high}",
    }


def _rollout(config: RunConfig, layout: Layout, engine: EngineChoice) -> Spec:
    in_turns = isinstance(layout.program, Lockstep) and layout.program.lag == 0
    return {
        "mode": "sync" if in_turns else "async",
        "workers": layout.program.num_workers,
        "envs": config.num_envs,
        "horizon": config.ppo.horizon_length,
        "engine": engine.name,
        "device": engine.device,
        "policy_inference_device": engine.device,
        "generates": ["s", "a", "r", "s'", "terminated", "truncated", "log pi(a|s)", "V(s)", "version"],
        "loop": ["act: normalise, network, sample, write row t in place", "step: env.step, write row t in place"],
    }


def _buffer(layout: Layout, slabs: Group) -> Spec:
    tensors = [
        {"name": name, "shape": list(tensor.shape), "dtype": str(tensor.dtype).partition(".")[2]}
        for name, tensor in layout.slabs[0].tensors().items()
    ]
    count = layout.program.num_slabs
    return {
        "buffer_class": "RolloutBuffer",
        "implementation": f"ring of {count} slabs per worker, T+1 rows of observations and values",
        "lifetime": "cleared after each update",
        "location": "in-process RAM" if slabs.device == "cpu" else "device memory",
        "device": slabs.device,
        "capacity_transitions": layout.batch.rows * count,
        "capacity_bytes": slabs.bytes,
        "slab_of_first_worker": tensors,
    }


def _learner(config: RunConfig, layout: Layout, device: str) -> Spec:
    return {
        "device": device,
        "transfer": "none: slabs, batch and policy lie on one device",
        "rows_per_update": layout.batch.rows,
        "minibatches": layout.batch.count,
        "minibatch_rows": layout.batch.size,
        "epochs": config.ppo.mini_epochs,
        "advantage": config.advantage.name,
        "loss": config.loss.name,
        "optimizer": "Adam, fused over one flat buffer",
        "parameters": layout.policy.parameters.numel(),
        "batch_bytes": _bytes(vars(layout.batch)),
        "parameter_sync": f"{layout.policy.bytes.numel():,} bytes a version, one copy to publish and one to adopt",
        "loop": ["minibatch: forward, loss, backward, clip, Adam, all in place"],
    }


def _hooks(config: RunConfig) -> List[Spec]:
    report, ppo, evaluation = config.report, config.ppo, config.eval
    saved = f"every {ppo.save_frequency} updates and at the end" if ppo.save_frequency else "at the end"
    console = {"rich": "live", "off": "never"}.get(report.console, f"every {report.interval:g} s, or live")
    rows = [
        ("console", console, report.console),
        ("metrics.csv", "every update", "one row an update"),
        ("TensorBoard", "every update" if report.tensorboard else "never", "rl_games' tags"),
        ("W&B", "never" if config.wandb == "disabled" else "every update", config.wandb),
        ("heartbeat", "every update, at most once a second", "for health checks"),
        ("checkpoint", saved, f"{config.keep_checkpoints} kept"),
        (
            "best checkpoint",
            f"with a checkpoint from update {ppo.save_best_after} on",
            "by evaluation return" if evaluation.every else "by mean training return",
        ),
        ("evaluation", _evaluated(config), f"{evaluation.num_envs} episodes, no noise"),
        ("video", f"every {config.capture_video_freq} env steps" if config.capture_video else "never", "videos/"),
        ("reward curve", "at the end" if report.plot else "never", "curve.png"),
    ]
    return [{"name": name, "frequency": frequency, "detail": detail} for name, frequency, detail in rows]


def _evaluated(config: RunConfig) -> str:
    during = f"every {config.eval.every} updates, in its own thread" if config.eval.every else ""
    return " and ".join(filter(None, (during, "at the end" if config.eval.enabled else ""))) or "never"


def _bytes(tensors: Mapping[str, Any]) -> int:
    return sum(t.numel() * t.element_size() for t in tensors.values() if isinstance(t, Tensor))
