"""Which engines there are, and which of them a run gets."""

from __future__ import annotations

import importlib
from typing import Dict, NamedTuple, Type

import torch

from isaac_appo.sim.engine import Engine, EngineError

__all__ = ["ENGINES", "EngineChoice", "engine_class", "physics_device", "resolve_engine"]


class EngineEntry(NamedTuple):
    """Where an engine lives."""

    module: str
    class_name: str
    text: str
    """One line for `isaac-appo list`."""


ENGINES: Dict[str, EngineEntry] = {
    "mujoco": EngineEntry("isaac_appo.sim.mujoco", "MujocoEngine", "MuJoCo C, in process, any CPU"),
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
    for key, device in (("sim_device", sim_device), ("rl_device", rl_device)):
        if device not in ("auto", "cpu"):
            rule = "sim=mujoco steps on the CPU, and policy and learner use its tensors in place"
            raise EngineError(f"{key} = {device}: {rule}. Use {key}=cpu")
    if sim == "auto":
        return EngineChoice("mujoco", "cpu", "sim=auto: no GPU engine is built in yet, and this one runs on any CPU")
    return EngineChoice(sim, "cpu", "as asked")


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
