"""Which engines there are, and which of them a run gets."""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from typing import Dict, NamedTuple, Type

import torch

from isaac_appo.kernels import wp
from isaac_appo.sim.engine import Engine, EngineError

__all__ = ["ENGINES", "EngineChoice", "engine_class", "missing_for_warp", "physics_device", "resolve_engine"]


class EngineEntry(NamedTuple):
    """Where an engine lives."""

    module: str
    class_name: str
    text: str
    """One line for `isaac-appo list`."""


ENGINES: Dict[str, EngineEntry] = {
    "mujoco": EngineEntry("isaac_appo.sim.mujoco", "MujocoEngine", "MuJoCo C, in process, any CPU"),
    "mujoco_warp": EngineEntry("isaac_appo.sim.mujoco_warp", "MujocoWarpEngine", "MuJoCo Warp, in process, CUDA GPUs"),
    "isaacgym": EngineEntry("isaac_appo.sim.isaacgym", "IsaacGymEngine", "Isaac Gym Preview 4, Python 3.8"),
}
"""By name. A module is imported when its engine is built, and not before."""


class EngineChoice(NamedTuple):
    """What `sim`, `sim_device` and `rl_device` come to."""

    name: str
    """A key of ENGINES."""
    device: str
    """torch device of the contract tensors, the policy and the learner."""
    reason: str

    def __str__(self) -> str:
        return f"sim={self.name} on {self.device} ({self.reason})"


def engine_class(name: str) -> Type[Engine]:
    """The class of an engine; imports its module. Errors: EngineError for a name that is none."""
    if name not in ENGINES:
        raise EngineError(f"sim={name}: no such engine. Engines: {', '.join(ENGINES)}")
    entry = ENGINES[name]
    found: Type[Engine] = getattr(importlib.import_module(entry.module), entry.class_name)
    return found


def resolve_engine(sim: str, sim_device: str, rl_device: str, pipeline: str = "gpu") -> EngineChoice:
    """The engine and device of a run, and why. Errors: EngineError for a device that the engine cannot use."""
    if sim == "isaacgym":
        return _isaacgym(sim_device, rl_device, pipeline)
    device = _agreed(sim, sim_device, rl_device)
    missing = missing_for_warp()
    if sim == "auto":
        if device == "cpu":
            return EngineChoice("mujoco", "cpu", "sim=auto: the device asked for is the CPU")
        if not missing:
            return EngineChoice("mujoco_warp", _existing(device), "sim=auto: the fastest engine on a GPU")
        if device == "auto":
            return EngineChoice("mujoco", "cpu", f"sim=auto: {missing}, and this one runs on any CPU")
        key = "rl_device" if sim_device == "auto" else "sim_device"
        raise EngineError(f"{key} = {device}: {missing}. Use sim_device=cpu rl_device=cpu")
    if sim == "mujoco_warp":
        return _resolve_warp(device, missing)
    for key, asked in (("sim_device", sim_device), ("rl_device", rl_device)):
        if asked not in ("auto", "cpu"):
            rule = "sim=mujoco steps on the CPU, and policy and learner use its tensors in place"
            raise EngineError(f"{key} = {asked}: {rule}. Use {key}=cpu")
    return EngineChoice(sim, "cpu", "as asked")


def _agreed(sim: str, sim_device: str, rl_device: str) -> str:
    """The one device that both keys leave, "auto" where neither names one."""
    asked = {_numbered(device) for device in (sim_device, rl_device)} - {"auto"}
    if len(asked) > 1 and sim != "mujoco":  # sim=mujoco refuses a GPU by the key that names it
        rule = f"differs from sim_device = {sim_device}: policy and learner use the engine's tensors in place"
        raise EngineError(f"rl_device = {rl_device}: {rule}. Use rl_device=auto")
    return asked.pop() if asked else "auto"


def _numbered(device: str) -> str:
    return "cuda:0" if device == "cuda" else device


def missing_for_warp(physics: bool = True) -> str:
    """What keeps mujoco_warp, or without ``physics`` Warp alone, off a GPU here; empty if nothing does."""
    if not torch.cuda.is_available():
        return "PyTorch finds no CUDA GPU"
    if not wp.is_cuda_available():
        return "Warp finds no CUDA GPU"
    if physics and not find_spec("mujoco_warp"):
        return "mujoco_warp is not installed (pip install 'isaac-appo[warp]')"
    return ""


def _resolve_warp(device: str, missing: str) -> EngineChoice:
    if find_spec("mujoco_warp") is None:
        raise EngineError(
            "sim = mujoco_warp: the package mujoco_warp is not installed; it needs Python 3.11 or later. "
            "pip install 'isaac-appo[warp]', or use sim=mujoco"
        )
    if device == "cpu":
        return EngineChoice("mujoco_warp", "cpu", "as asked; for comparison only: sim=mujoco is faster on a CPU")
    if missing:
        raise EngineError(f"sim = mujoco_warp: {missing}. Use sim=mujoco, or sim_device=cpu to try it slowly")
    return EngineChoice("mujoco_warp", _existing(device), "as asked")


def _existing(device: str) -> str:
    """A GPU that is there; the first for "auto"."""
    number, count = int(device.partition(":")[2] or 0), torch.cuda.device_count()
    if number >= count:
        raise EngineError(f"sim_device = {device}: this machine has {count} GPU(s). Use sim_device=cuda:0")
    return f"cuda:{number}"


def physics_device(sim_device: str) -> str:
    """Where PhysX runs: "cpu" or "cuda:N"; auto is cuda:0 where CUDA works."""
    if sim_device == "auto":
        return "cuda:0" if torch.cuda.is_available() else "cpu"
    return "cuda:0" if sim_device == "cuda" else sim_device


def _isaacgym(sim_device: str, rl_device: str, pipeline: str) -> EngineChoice:
    physics = physics_device(sim_device)
    device = physics if pipeline == "gpu" else "cpu"
    if rl_device not in ("auto", device) and (rl_device, device) != ("cuda", "cuda:0"):
        rule = f"policy and learner use Isaac Gym's tensors in place, and sim_device={sim_device} pipeline={pipeline}"
        raise EngineError(f"rl_device = {rl_device}: {rule} puts them on {device}. Use rl_device={device}")
    return EngineChoice("isaacgym", device, f"as asked, PhysX on {physics}")
