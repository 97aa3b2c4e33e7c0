"""Tasks that another package brings: `task=isaacgymenvs:ShadowHand`. Torch-free, as it is read before torch may be."""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple

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


def take_package(overrides: Sequence[str], command: str, errors: List[object]) -> Tuple[Optional[Path], List[str]]:
    """Turn `task=PACKAGE:NAME` into `task=NAME` and return the package's `cfg`; what is wrong is added to `errors`."""
    words: List[str] = []
    cfg_dir: Optional[Path] = None
    for word in overrides:
        match = re.fullmatch(r"\+{0,2}task=([\w.]+):(\w+)", word)
        if match is None:
            words.append(word)
            continue
        name, task = match.groups()
        fault = _fault(name, task, command)
        if fault:
            errors.append(Finding("task", f"{name}:{task}", *fault))
        else:
            cfg_dir = _cfg_dir(name)
            words += [f"task={task}", f"++task.package={name}"]
    return cfg_dir, _with_own_groups(words) if cfg_dir else words


def _fault(name: str, task: str, command: str) -> Optional[Tuple[str, str]]:
    """Why a task cannot be had, and what to do."""
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name != "isaacgymenvs":
        return "tasks come from here or from isaacgymenvs", f"Use isaacgymenvs:{task}"
    if command != "train":
        return f"isaac-appo {command} takes our own tasks only", "Use task=Ant"
    cfg_dir, file = _cfg_dir(name), f"task/{task}.yaml"
    fix = f"Install IsaacGymEnvs for this Python ({sys.executable}); {_DOCTOR}. task=Ant runs without it"
    if cfg_dir is None:
        return f"package {name} is not installed", fix
    if not (cfg_dir / "task").is_dir():
        return f"{cfg_dir}/task is missing", fix
    if (_OURS / file).is_file() and not (cfg_dir / file).is_file():  # Hydra would find our own
        return f"{name} has no such task, it is ours", f"Use task={task}"
    return None


def _cfg_dir(name: str) -> Optional[Path]:
    """The configuration of a package that is installed, without importing it."""
    spec = importlib.util.find_spec(name)
    folders = list(spec.submodule_search_locations or []) if spec else []
    return Path(folders[0]) / "cfg" if folders else None


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
