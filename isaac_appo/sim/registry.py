"""Which engines there are, and which of them a run gets."""

from __future__ import annotations

import importlib
from typing import Dict, NamedTuple, Type

from isaac_appo.sim.engine import Engine, EngineError

__all__ = ["ENGINES", "EngineChoice", "engine_class", "resolve_engine"]


class EngineEntry(NamedTuple):
    """Where an engine lives."""

    module: str
    class_name: str
    text: str
    """One line for `isaac-appo list`."""


ENGINES: Dict[str, EngineEntry] = {
    "mujoco": EngineEntry("isaac_appo.sim.mujoco", "MujocoEngine", "MuJoCo C, in process, any CPU"),
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


def resolve_engine(sim: str, sim_device: str, rl_device: str) -> EngineChoice:
    """The engine and device of a run, and why. Errors: EngineError for a device that the engine cannot use."""
    for key, device in (("sim_device", sim_device), ("rl_device", rl_device)):
        if device not in ("auto", "cpu"):
            rule = "sim=mujoco steps on the CPU, and policy and learner use its tensors in place"
            raise EngineError(f"{key} = {device}: {rule}. Use {key}=cpu")
    if sim == "auto":
        return EngineChoice("mujoco", "cpu", "sim=auto: no GPU engine is built in yet, and this one runs on any CPU")
    return EngineChoice(sim, "cpu", "as asked")
