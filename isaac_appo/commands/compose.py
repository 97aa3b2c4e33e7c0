"""Command line to configuration: IsaacGymEnvs' habits on Hydra's compose API, with every mistake told at once."""

from __future__ import annotations

import random
import re
import sys
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, is_dataclass
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence

from hydra import compose as hydra_compose
from hydra import initialize_config_dir, initialize_config_module
from hydra.core.config_loader import ConfigLoader
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from isaac_appo.config.choices import GROUPS
from isaac_appo.config.errors import ConfigError, Finding, show
from isaac_appo.config.option import rules_of, walk
from isaac_appo.config.origin import annotated, dotted, leaves, origins
from isaac_appo.config.packages import (
    ROOT,
    has_nvidia_driver,
    import_package,
    package_devices,
    store_root,
    take_package,
)
from isaac_appo.config.read import default_of
from isaac_appo.config.resolvers import register_resolvers
from isaac_appo.config.schema import RunConfig
from isaac_appo.config.suggest import nearest, nearest_path
from isaac_appo.config.validate import validate
from isaac_appo.sim.isaacgym_import import IsaacGymUnavailableError, import_isaacgym

# Values that are names or paths and never Hydra expressions, so `=`, `[` and spaces in them are plain characters.
_RAW = ("checkpoint", "resume", "experiment", "run_root")
# Their keys are free-form, so only what the YAML holds can tell a misspelt one.
_FREE_FORM = ("task.env.", "train.params.network.", "hydra.")


@dataclass(frozen=True)
class ComposedConfig:
    """What a command line means: Hydra's tree as composed, the validated `config`, notices, and what was typed."""

    cfg: DictConfig
    config: RunConfig
    warnings: List[str]
    overrides: List[str]
    words: List[str]
    """What Hydra was given for `overrides`."""
    package: Optional[Path] = None
    """`cfg` of the package that brings the task."""

    def annotated(self) -> str:
        """The resolved configuration as YAML, each value with where it comes from in a comment."""
        with hydra_loader(package=self.package) as loader:
            root = ROOT if self.package else "config"
            return annotated(self.cfg, origins(loader, self.words, root), resolve=True)


@dataclass
class Arguments:
    """A command line taken apart: Hydra overrides and the few options that are not overrides."""

    overrides: List[str] = field(default_factory=list)
    show_config: bool = False
    resolve: bool = False
    origin: bool = False
    help: bool = False


def compose(argv: Sequence[str], command: str = "train") -> ComposedConfig:
    """Compose and validate the configuration that `argv` asks for; callable any number of times in one process.

    `--help` and `--cfg job [--resolve] [--origin]` print and raise SystemExit(0). Raises ConfigError with every mistake
    found, in the command line and in the values alike.
    """
    errors: List[object] = []
    arguments = parse_arguments(argv, errors)
    register_resolvers()
    make_importable(arguments.overrides)
    package, words = take_package(arguments.overrides, command, errors)
    root = ROOT if package else "config"
    with hydra_loader(command, package) as loader:
        if arguments.help:
            print(help_text(command, loader, arguments.overrides))
            raise SystemExit(0)
        overrides = _check_overrides(words, loader, errors)
        cfg = _compose_what_can(overrides, errors, root)
        if cfg is None:
            raise ConfigError(errors)
        if package:
            cfg.update(package_devices(cfg.sim_device, cfg.rl_device, has_nvidia_driver()))
        if arguments.show_config and not errors:
            with suppress(OmegaConfBaseException):  # a reference that leads nowhere: validation names it
                if arguments.origin:
                    print(annotated(cfg, origins(loader, overrides, root), arguments.resolve), end="")
                else:
                    print(OmegaConf.to_yaml(cfg, resolve=arguments.resolve), end="")
    typed = list(argv)
    notices = _draw_seed(cfg, typed)
    try:
        config, warnings = validate(cfg)
    except ConfigError as error:
        raise ConfigError([*errors, *error.errors]) from None
    if errors:
        raise ConfigError(errors)
    if arguments.show_config:
        raise SystemExit(0)
    return ComposedConfig(cfg, config, notices + warnings, typed, overrides, package)


@contextmanager
def hydra_loader(job: str = "train", package: Optional[Path] = None) -> Iterator[ConfigLoader]:
    """Hydra, with our groups or those of a package; its global state is restored: a caller may be a Hydra program."""
    state = GlobalHydra.instance()
    outer, state.hydra = state.hydra, None
    try:
        if package is None:
            entered: Any = initialize_config_module("isaac_appo.cfg", version_base="1.3", job_name=job)
        else:
            store_root()
            entered = initialize_config_dir(str(package.resolve()), version_base="1.3", job_name=job)
        with entered:
            yield GlobalHydra.instance().config_loader()
    finally:
        GlobalHydra.instance().hydra = outer


def parse_arguments(argv: Sequence[str], errors: List[object]) -> Arguments:
    """Split `argv` into overrides and options; what is neither is added to `errors` with what to write instead."""
    found = Arguments()
    words = iter(argv)
    for word in words:
        if re.match(r"--[\w.]+=", word) and not word.startswith(("--cfg=", "--config-dir=")):
            word = word[2:]  # as agents of W&B sweeps write keys
        if word in ("-h", "--help"):
            found.help = True
        elif word in ("--resolve", "--origin"):
            setattr(found, word[2:], True)
        elif word in ("-m", "--multirun"):
            errors.append(f"{word}: only isaac-appo train sweeps. Leave it out and give one value for each key")
        elif word in ("-c", "--cfg") or word.startswith("--cfg="):
            what = word[6:] if word.startswith("--cfg=") else next(words, "")
            found.show_config = True
            if what != "job":
                errors.append(f"--cfg {show(what)}: only the job's configuration can be shown. Write --cfg job")
        elif word in ("-cd", "--config-dir") or word.startswith("--config-dir="):
            folder = word[13:] if word.startswith("--config-dir=") else next(words, "")
            found.overrides += _search_path(folder, errors)
        elif word.startswith("-"):
            options = "--help, --cfg job, --resolve, --origin, --config-dir DIR and -m"
            errors.append(f"{word}: no such option. Options are {options}; keys are KEY=VALUE")
        elif not re.match(r"(\+{0,2}|~)\w", word):
            errors.append(f"{show(word)}: no key. Write KEY=VALUE")
        elif "=" not in word and not word.startswith("~"):
            errors.append(f"{word}: needs a value. Write {word}={'True' if word.isidentifier() else 'VALUE'}")
        else:
            found.overrides.append(_quote(word))
    return found


def _search_path(folder: str, errors: List[object]) -> List[str]:
    """The override that adds a folder with the user's own groups (task/MyTask.yaml, ...)."""
    path = Path(folder)
    if not folder or not path.is_dir():
        errors.append(f"--config-dir {show(folder)}: no such folder. Give the folder that holds task/ and train/")
        return []
    return [f'hydra.searchpath=["file://{path.resolve()}"]']


def make_importable(overrides: Sequence[str]) -> None:
    """Let `task.module` name a file in the user's folders; last, so that it hides nothing that is installed."""
    for word in overrides:
        found = re.findall(r'file://([^"\]]+)', word) if word.startswith("hydra.searchpath=") else []
        sys.path += [folder for folder in found if folder not in sys.path]


def _quote(word: str) -> str:
    """Quote a value that is a path or a name, unless the user did; `full_experiment_name` is a name of experiment."""
    key, _, value = word.partition("=")
    bare = key.lstrip("+")
    if bare == "full_experiment_name":
        bare = key = "experiment"
    if bare not in _RAW or re.fullmatch(r"'.*'|\".*\"", value):
        return f"{key}={value}" if "=" in word else word
    escaped = re.sub(r'(\\*)("|$)', lambda m: m.group(1) * 2 + ("\\" if m.group(2) else "") + m.group(2), value)
    return f'{key}="{escaped}"'


def _check_overrides(words: Sequence[str], loader: ConfigLoader, errors: List[object]) -> List[str]:
    """The overrides Hydra can take, made lenient: `key=` and `+key=` both set a key whether or not the YAML has it."""
    parser = OverridesParser.create()
    search = [word for word in words if word.startswith("hydra.searchpath=")]
    kept: List[str] = []
    for word in words:
        try:
            override = parser.parse_override(word)
        except HydraException:
            errors.append(f"{word}: Hydra cannot read it. Quote the value: '{word.partition('=')[0]}=\"VALUE\"'")
            continue
        key = override.key_or_group
        if override.is_sweep_override():
            errors.append(f"{word}: several values make a sweep. Write isaac-appo train -m ..., or give one value")
        elif key in GROUPS and not override.is_delete() and not isinstance(override.value(), (dict, list)):
            kept += _check_choice(key, str(override.value()), loader, search, errors)
        elif override.is_delete() or "/" in key or key.startswith(_FREE_FORM):
            kept.append(word)
        else:
            kept.append("++" + word.lstrip("+"))
    return kept


def _check_choice(
    group: str, choice: str, loader: ConfigLoader, search: Sequence[str], errors: List[object]
) -> List[str]:
    """The override for one group, or none and an error that lists what there is."""
    known = loader.get_group_options(group, ObjectType.CONFIG, "config", list(search))
    if choice in known:
        return [f"{group}={choice}"]
    match = nearest(choice, known)
    fix = f"Did you mean {group}={match}?" if match else f"Use {group}={known[0]}"
    errors.append(Finding(group, choice, f"must be one of {', '.join(known)}", fix))
    return []


def _compose_what_can(overrides: Sequence[str], errors: List[object], root: str) -> Optional[DictConfig]:
    """Compose, leaving out each free-form key that the YAML lacks, so that all of them are told together."""
    words, refused = list(overrides), []
    while True:
        try:
            cfg = hydra_compose(root, words)
            break
        except (HydraException, OmegaConfBaseException, YAMLError, UnicodeDecodeError) as error:
            match = re.match(r"Could not override '([^']+)'", str(error))
            bad = next((word for word in words if match and word.partition("=")[0] == match.group(1)), None)
            if bad is None:
                errors.append(_translate(error, words))
                return None
            refused.append(bad)
            words.remove(bad)
    known = [dotted(path) for path in leaves(cfg)]
    for word in refused:
        key, _, value = word.partition("=")
        meant = nearest_path(key, known)
        fix = f"Did you mean {meant}?" if meant else f"Add it with +{word}"
        errors.append(Finding(key, value, "unknown key", fix))
    return cfg


def _translate(error: Exception, words: Sequence[str]) -> str:
    """Hydra's message in one line, with the usual cause of a missing file."""
    text = " ".join(str(error).split())
    if isinstance(error, (YAMLError, UnicodeDecodeError)):
        return f"A YAML file cannot be read: {text}"
    match = re.search(r"train/(\w+)PPO", text)
    if match and not any(word.startswith("train=") for word in words):
        task = match.group(1)
        return f"train = {task}PPO: task {task} has no train/{task}PPO.yaml. Write one or choose train=NAME"
    return text


def _draw_seed(cfg: DictConfig, typed: List[str]) -> List[str]:
    """Replace seed=-1 by a drawn one, in what was typed too, so that what is stored repeats and resumes the run."""
    raw = OmegaConf.to_container(cfg, resolve=False)
    if not isinstance(raw, dict) or raw.get("seed") != -1:
        return []
    cfg.seed = random.SystemRandom().randrange(2**31)
    typed[:] = [word for word in typed if word.lstrip("+") != "seed=-1"] + [f"seed={cfg.seed}"]
    return [f"seed = -1: drew {cfg.seed}; seed={cfg.seed} repeats this run."]


def before_torch(config: RunConfig) -> None:
    """Import Isaac Gym if the run is on it: it must come before torch. Every command that makes an engine calls this.

    Raises ConfigError, with what to do instead, where Isaac Gym or the package that brings the task cannot be used.
    """
    if config.task.package:
        import_package(config.task.package)
    if config.sim.name != "isaacgym":
        return
    try:
        import_isaacgym()
    except IsaacGymUnavailableError as error:
        fix = (
            "`isaac-appo doctor` says what this machine can run, docs/isaac_gym.md how to install it; the same task "
            "runs here with sim=auto or sim=mujoco"
        )
        raise ConfigError([Finding("sim", "isaacgym", str(error), fix)]) from error


def help_text(command: str, loader: ConfigLoader, overrides: Sequence[str] = ()) -> str:
    """What `isaac-appo COMMAND --help` prints: groups with their choices and every top-level key that has an effect."""
    search = [word for word in overrides if word.startswith("hydra.searchpath=")]
    options = "[--cfg job [--resolve] [--origin]] [--config-dir DIR] [--help]"
    lines = [f"usage: isaac-appo {command} [KEY=VALUE ...] {options}", ""]
    lines += [
        f"  isaac-appo {command} task=Ant num_envs=1024",
        f"  isaac-appo {command} task=Cartpole seed=1 max_iterations=50 experiment=mine",
        f"  isaac-appo {command} task=Ant train.params.config.learning_rate=1e-3 schedule=sync",
        f"  isaac-appo {command} task=Ant --cfg job --resolve --origin    (every key and its origin; nothing runs)",
        "  isaac-appo train -m task=Ant,Cartpole seed=1,2,3    (a sweep: one process per run)",
        f"  isaac-appo {command} task=isaacgymenvs:ShadowHand    (a task of IsaacGymEnvs, where that is installed)",
        "",
        "Choices:",
    ]
    for group in GROUPS:
        known = loader.get_group_options(group, ObjectType.CONFIG, "config", search)
        lines.append(f"  {group + '=':<22}{' | '.join(known)}")
    lines += ["", "Keys:"]
    for path, item, hint in walk(RunConfig):
        rules = rules_of(item)
        hidden = {"refused", "silent"} & set(rules) or ("inert" in rules and "engine" not in rules)
        if path.partition(".")[0] not in GROUPS and not hidden and not is_dataclass(hint):
            default = "''" if path in ("num_envs", "max_iterations") else show(default_of(item))
            lines.append(f"  {f'{path}={default}':<32} {rules['help']}")
    lines += ["", "IsaacGymEnvs' other top-level keys are accepted; one without effect here says so when it is set."]
    return "\n".join(lines)
