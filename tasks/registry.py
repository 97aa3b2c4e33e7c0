"""Find a task by name and check the user's `task.env` settings."""

from __future__ import annotations

import difflib
import importlib
import math
from typing import Any, Dict, List, Mapping, Type

from isaac_appo.errors import UserError
from isaac_appo.sim.engine import Engine
from isaac_appo.tasks.base import Task

__all__ = ["TASKS", "TaskError", "make_task", "resolve_env_cfg", "task_class"]

TASKS: Dict[str, str] = {
    "Ant": "isaac_appo.tasks.ant:Ant",
    "Cartpole": "isaac_appo.tasks.cartpole:Cartpole",
}

# Keys that users' task files carry over and that mean nothing to an engine without cameras, viewer or assets to choose.
_WITHOUT_EFFECT = frozenset(
    ("numEnvs", "envSpacing", "enableDebugVis", "enableCameraSensors", "asset", "plane", "aggregateMode", "viewer")
)


class TaskError(UserError, ValueError):
    """A task or a setting of a task that does not exist or cannot be; the text lists what can."""


def _nearest(word: str, known: List[str]) -> str:
    """A "did you mean" for the text of an error, or nothing."""
    by_case = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), list(by_case), n=1, cutoff=0.6)
    return f" Did you mean {by_case[near[0]]!r}?" if near else ""


def task_class(name: str) -> Type[Task]:
    """The class of a task: a key of `TASKS`, or `module:Class` for one of the user's own.

    Errors: TaskError that lists all tasks, or says what is wrong with the user's.
    """
    if ":" in name:
        return _own_class(*name.split(":", 1))
    if name not in TASKS:
        known = sorted(TASKS)
        own = "One of your own says module: in its YAML"
        raise TaskError(f"task={name!r} does not exist.{_nearest(str(name), known)} Tasks: {', '.join(known)}. {own}")
    module, attribute = TASKS[name].split(":")
    found: Type[Task] = getattr(importlib.import_module(module), attribute)
    return found


def _own_class(module: str, name: str) -> Type[Task]:
    where = f"task.module={module!r}"
    try:
        file = importlib.import_module(module)
    except (ImportError, TypeError) as error:  # TypeError: a relative name
        remedy = "Give the folder that holds it with --config-dir, or put it on PYTHONPATH"
        raise TaskError(f"{where} cannot be imported: {error}. {remedy}") from error
    found = getattr(file, name, None)
    if not (isinstance(found, type) and issubclass(found, Task)):
        raise TaskError(f"{where} ({file.__file__}) has no class {name!r} derived from isaac_appo.tasks.base.Task")
    lacking = [key for key in Task.__annotations__ if not hasattr(found, key)] + sorted(found.__abstractmethods__)
    if lacking:
        raise TaskError(f"{where}: class {name} lacks {', '.join(lacking)}; see the docstring of Task")
    return found


def _fault(cls: Type[Task], key: str, value: Any) -> str:
    """What is wrong with one setting, or nothing."""
    where = f"task.env.{key}={value!r}"
    if key == "controlFrequencyInv":
        return "" if value == 1 else f"{where} must be 1 here; set sim.dt and sim.substeps instead"
    if key not in cls.defaults:
        return f"{where} is no setting of {cls.name}.{_nearest(key, list(cls.defaults))}"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        return f"{where} must be a number; the default is {cls.defaults[key]}"
    if isinstance(cls.defaults[key], int) and (value != int(value) or value < 2):
        return f"{where} must be a whole number of at least 2; the default is {cls.defaults[key]}"
    if key in cls.positive and value <= 0:
        return f"{where} must be above 0; the default is {cls.defaults[key]}"
    if math.isinf(value) and not key.startswith("clip"):
        return f"{where} must be finite; the default is {cls.defaults[key]}"
    return ""


def resolve_env_cfg(name: str, env_cfg: Mapping[str, Any]) -> Dict[str, float]:
    """The task's defaults with the user's `task.env` values on top. Errors: TaskError with all faults at once."""
    cls = task_class(name)
    given = {key: value for key, value in env_cfg.items() if key not in _WITHOUT_EFFECT and value is not None}
    faults = [fault for fault in (_fault(cls, key, value) for key, value in given.items()) if fault]
    if faults:
        raise TaskError("\n".join([*faults, f"Settings of {cls.name}: {', '.join(cls.defaults)}"]))
    return {key: type(default)(given.get(key, default)) for key, default in cls.defaults.items()}


def make_task(name: str, env_cfg: Mapping[str, Any], engine: Engine, seed: int) -> Task:
    """The task on an engine that was built with its `model_file` and `sites`. Errors: TaskError."""
    return task_class(name)(engine, resolve_env_cfg(name, env_cfg), seed)
