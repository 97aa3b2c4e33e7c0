"""Tasks that another package brings: `task=isaacgymenvs:ShadowHand`. Torch-free, as it is read before torch may be."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

import isaac_appo
from isaac_appo.config.errors import ConfigError, Finding
from isaac_appo.config.resolvers import RESOLVERS, register_resolvers

ROOT = "isaac_appo_config"
"""Name under which our `config.yaml` is composed beside a package that has one of its own."""
_OURS = Path(isaac_appo.__file__).parent / "cfg"
_DOCTOR = "isaac-appo doctor says what this machine lacks"
_ELSEWHERE = {
    "legged_gym": (
        "its tasks are made in Python, from classes",
        "Make the env with its task_registry and give it to Trainer(..., envs=[LeggedGymEnv(env)])",
    )
}


class TaskPackage(NamedTuple):
    """A package with `cfg/task` and `cfg/train`."""

    name: str
    cfg_dir: Path


def take_package(
    overrides: Sequence[str], command: str, errors: List[object]
) -> Tuple[Optional[TaskPackage], List[str]]:
    """Turn `task=PACKAGE:NAME` into `task=NAME` and return the package; what is wrong is added to `errors`."""
    words, package = list(overrides), None
    for index, word in enumerate(overrides):
        match = re.fullmatch(r"\+{0,2}task=([\w.]+):(\w+)", word)
        if match is None:
            continue
        package = _find(match.group(1), match.group(2), command, errors)
        if package is None:
            words[index : index + 1] = []
        else:
            words[index] = f"task={match.group(2)}"
            words.append(f"++task.package={package.name}")
    return package, words if package is None else _with_own_groups(words)


def _find(name: str, task: str, command: str, errors: List[object]) -> Optional[TaskPackage]:
    value = f"{name}:{task}"
    if name in _ELSEWHERE:
        errors.append(Finding("task", value, *_ELSEWHERE[name]))
    elif name != "isaacgymenvs":
        errors.append(Finding("task", value, "tasks come from here or from isaacgymenvs", f"Use isaacgymenvs:{task}"))
    elif command != "train":
        errors.append(Finding("task", value, f"isaac-appo {command} takes our own tasks only", "Use task=Ant"))
    else:
        return _installed(name, task, value, errors)
    return None


def _installed(name: str, task: str, value: str, errors: List[object]) -> Optional[TaskPackage]:
    """The package, looked up without importing it; a name that only we have would find our own file."""
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or []) if spec else []
    fix = f"Install IsaacGymEnvs for this Python ({sys.executable}); {_DOCTOR}. task=Ant runs without it"
    if not folders:
        errors.append(Finding("task", value, f"package {name} is not installed", fix))
        return None
    package = TaskPackage(name, Path(folders[0]) / "cfg")
    if not (package.cfg_dir / "task").is_dir():
        errors.append(Finding("task", value, f"{package.cfg_dir}/task is missing", fix))
        return None
    if _has(_OURS, task) and not _has(package.cfg_dir, task):
        errors.append(Finding("task", value, f"{name} has no such task, it is ours", f"Use task={task}"))
        return None
    return package


def _has(cfg_dir: Path, task: str) -> bool:
    return (cfg_dir / "task" / f"{task}.yaml").is_file()


def _with_own_groups(words: List[str]) -> List[str]:
    """The package's folder comes first, so that its Ant is its own; schedule, sim and the like are found in ours."""
    paths = [word.partition("=")[2].strip("[]") for word in words if word.startswith("hydra.searchpath=")]
    others = [word for word in words if not word.startswith("hydra.searchpath=")]
    ours = f'"file://{_OURS.resolve()}"'
    return [*others, f"hydra.searchpath=[{','.join([ours, *paths])}]"]


def store_root() -> None:
    """Make our `config.yaml` available as `ROOT`."""
    ConfigStore.instance().store(name=ROOT, node=OmegaConf.load(_OURS / "config.yaml"))


def package_devices(sim_device: str, rl_device: str, gpu: bool) -> Dict[str, str]:
    """`auto` made explicit: Isaac Gym's settings read the words, so they must be there before torch can be asked."""
    sim = sim_device if sim_device != "auto" else "cuda:0" if gpu else "cpu"
    chosen = {"sim_device": sim, "rl_device": rl_device if rl_device != "auto" else sim}
    return chosen if sim != "cpu" else {**chosen, "pipeline": "cpu"}


def has_nvidia_driver() -> bool:
    """Whether an NVIDIA driver is loaded."""
    return Path("/dev/nvidiactl").exists()


def import_package(name: str) -> Any:
    """Import a package of tasks, Isaac Gym before it. Errors: ConfigError with the reason.

    IsaacGymEnvs registers OmegaConf resolvers that exist here too, and fails if they do: they step aside for it.
    """
    if name in sys.modules:
        return sys.modules[name]
    for resolver in RESOLVERS:
        OmegaConf.clear_resolver(resolver)
    try:
        if importlib.util.find_spec("isaacgym") is not None:
            importlib.import_module("isaacgym")  # before torch, or it refuses
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError([f"package {name} is installed but cannot be imported: {error}. {_DOCTOR}"]) from error
    finally:
        register_resolvers()
