"""What a deployer must know to feed the exported policy and to use what it says."""

from __future__ import annotations

import hashlib
import platform
from pathlib import Path
from typing import Any, Dict, List

import mujoco
import torch

from isaac_appo import __version__
from isaac_appo.config import RunConfig
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.play.session import Policy

SCHEMA = 1


def contract_of(config: RunConfig, policy: Policy, env: TaskEnv) -> Dict[str, Any]:
    """The contract of the policy of `config` on `env`, as plain JSON values."""
    task, engine = env.task, env.engine
    ppo = config.ppo
    return {
        "schema": SCHEMA,
        "task": task.name,
        "observation": {
            "input": "obs",
            "shape": ["batch", task.num_obs],
            "dtype": "float32",
            "names": list(task.obs_names),
            "clip": _finite(task.cfg["clipObservations"]),
            "scaling": "inside: raw observations go in" if ppo.normalize_input else "none",
        },
        "action": {
            "output": "actions",
            "shape": ["batch", task.num_actions],
            "dtype": "float32",
            "names": list(task.action_names),
            "bound": min(task.cfg["clipActions"], 1.0) if ppo.clip_actions else _finite(task.cfg["clipActions"]),
            "effort_at_one": _effort_at_one(env),
        },
        "recurrent_state": [],
        "control": {
            "dt_s": engine.control_dt,
            "substeps": engine.spec.substeps,
            "physics_dt_s": engine.control_dt / engine.spec.substeps,
            "steps_per_action": 1,
        },
        "joints": {
            "names": list(engine.dof_names),
            "lower": _numbers(engine.dof_lower),
            "upper": _numbers(engine.dof_upper),
            "effort_limit": _numbers(engine.effort_limit),
            "initial": _numbers(engine.initial_dof_pos),
        },
        "model": {"file": Path(task.model_file).name, "sha256": sha256(Path(task.model_file))},
        "checkpoint": {
            "file": policy.path.name,
            "sha256": sha256(policy.path),
            "policy_version": policy.version,
            "env_steps": int(policy.state.get("frame", 0)),
        },
        "versions": {
            "isaac_appo": __version__,
            "torch": torch.__version__,
            "mujoco": mujoco.__version__,
            "python": platform.python_version(),
        },
    }


def _effort_at_one(env: TaskEnv) -> Dict[str, float]:
    """Joint -> effort in N·m (N) when every action is 1: efforts are proportional to actions."""
    env.task.apply(torch.ones(env.num_envs, env.num_actions, device=env.device))
    return dict(zip(env.engine.dof_names, env.task.efforts[0].tolist()))


def sha256(path: Path) -> str:
    """Of a file's contents."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _finite(value: float) -> Any:
    """JSON knows no infinity: null means unlimited."""
    return value if abs(value) != float("inf") else None


def _numbers(tensor: torch.Tensor) -> List[Any]:
    return [_finite(value) for value in tensor.tolist()]
