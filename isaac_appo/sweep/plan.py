"""What a sweep's command line asks for: the options of the sweep itself, and the words of each run."""

from __future__ import annotations

import hashlib
import itertools
import re
from pathlib import Path
from typing import Any, Dict, List, Mapping, NamedTuple, Sequence, Tuple

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException

LAUNCHERS = {
    "basic": "local",
    "local": "local",
    "slurm": "slurm",
    "submitit_slurm": "slurm",
    "submitit_local": "submitit_local",
}
SWEEPERS = ("basic", "optuna")
SEARCH = {"n_trials": 20, "direction": "maximize", "seed": None, "storage": None, "study_name": None}
"""`hydra.sweeper.KEY` with optuna, and the defaults; storage is a file in the sweep's folder unless it is named."""
_OWN = ("sweep.", "hydra/launcher", "hydra/sweeper", "hydra.launcher.", "hydra.sweeper.")
# What may differ between two starts of one sweep: it goes on in the same folders, as `train` does.
_NO_NAME = ("max_iterations", "resume", "run_root", "report.", "wandb", *_OWN)


class Options(NamedTuple):
    """The sweep's own options."""

    launcher: str
    sweeper: str
    jobs: int
    """Runs at a time; -1 = chosen for this machine, 0 = print the commands only."""
    launcher_params: Dict[str, Any]
    search: Dict[str, Any]


class Axis(NamedTuple):
    """One swept key and the values it takes, as override text; none if it is an interval to search in."""

    key: str
    values: Tuple[str, ...]
    override: Override


class Job(NamedTuple):
    """One run of a sweep."""

    number: int
    words: List[str]
    """What `isaac-appo train` is given."""
    swept: Dict[str, str]
    run_dir: Path

    def __str__(self) -> str:
        return " ".join(f"{key}={value}" for key, value in self.swept.items())


def read_options(words: Sequence[str], errors: List[object]) -> Tuple[Options, List[str]]:
    """The options among Hydra overrides, and the other words; what is wrong is added to `errors`."""
    rest = [word for word in words if not word.lstrip("+").startswith(_OWN)]
    own = dict(word.lstrip("+").partition("=")[::2] for word in words if word not in rest)
    launcher, sweeper = own.pop("hydra/launcher", "local"), own.pop("hydra/sweeper", "basic")
    for key, value, known in (("hydra/launcher", launcher, LAUNCHERS), ("hydra/sweeper", sweeper, SWEEPERS)):
        if value not in known:
            errors.append(f"{key} = {value}: must be one of {', '.join(known)}")
    jobs = own.pop("sweep.jobs", "-1")
    if not re.fullmatch(r"-1|\d+", jobs):
        errors.append(f"sweep.jobs = {jobs}: must be a whole number: runs at a time, 0 prints the commands")
        jobs = "-1"
    values = {key: yaml.safe_load(value) for key, value in own.items()}
    search = {**SEARCH, **_below("hydra.sweeper.", values)}
    unknown = [f"hydra.sweeper.{key}" for key in search if key not in SEARCH]
    unknown += [key for key in own if key.startswith("sweep.")]
    errors += [f"{key}: unknown. Known: sweep.jobs, hydra.sweeper.{{{', '.join(SEARCH)}}}" for key in unknown]
    if search["direction"] not in ("maximize", "minimize"):
        errors.append(f"hydra.sweeper.direction = {search['direction']}: must be maximize or minimize")
    params = _below("hydra.launcher.", values)
    return Options(LAUNCHERS.get(launcher, "local"), sweeper, int(jobs), params, search), rest


def _below(prefix: str, values: Mapping[str, Any]) -> Dict[str, Any]:
    return {key[len(prefix) :]: value for key, value in values.items() if key.startswith(prefix)}


def find_axes(words: Sequence[str], loader: ConfigLoader, errors: List[object]) -> Tuple[List[Axis], List[str]]:
    """The swept keys, in order, and the words that hold for every run."""
    parser = OverridesParser.create(config_loader=loader)
    axes: List[Axis] = []
    fixed: List[str] = []
    for word in words:
        try:
            override = parser.parse_overrides([word])[0]
            if not override.is_sweep_override():
                fixed.append(word)
                continue
            values = tuple(override.sweep_string_iterator()) if override.is_discrete_sweep() else ()
            axes.append(Axis(override.key_or_group, values, override))
        except HydraException as error:
            errors.append(f"{word}: Hydra cannot read it: {' '.join(str(error).split())}")
    return axes, fixed


def combinations(axes: Sequence[Axis]) -> List[Dict[str, str]]:
    """Key -> value for every run, the last key changing fastest."""
    keys = [axis.key for axis in axes]
    return [dict(zip(keys, values)) for values in itertools.product(*(axis.values for axis in axes))]


def sweep_name(words: Sequence[str]) -> str:
    """The same for the same sweep, whichever way its words are ordered."""
    counted = sorted(word.lstrip("+") for word in words if not word.lstrip("+").startswith(_NO_NAME))
    return f"sweep-{hashlib.sha256(chr(0).join(counted).encode()).hexdigest()[:6]}"


def run_name(base: str, swept: Mapping[str, str]) -> str:
    """The experiment's name of a run: all but its task and seed, which are folders of their own."""
    counted = {key: value for key, value in swept.items() if key not in ("task", "seed")}
    short = [key.rpartition(".")[2] for key in counted]
    name = "_".join([base, *(f"{key}-{value}" for key, value in zip(short, counted.values()))])
    if re.fullmatch(r"[A-Za-z0-9._-]{1,100}", name) and len(set(short)) == len(short):
        return name
    digest = hashlib.sha256(repr(counted).encode()).hexdigest()[:6]  # what is made plainer or shorter stays unique
    return f"{re.sub(r'[^A-Za-z0-9._-]+', '_', name)[:90]}_{digest}"
