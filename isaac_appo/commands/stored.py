"""The configuration that a checkpoint was trained with, read from its run directory, and what was typed on top."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Dict, List, Optional, Sequence, Tuple, Type, TypeVar

import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from isaac_appo.commands.compose import compose, make_importable, parse_arguments
from isaac_appo.config.choices import GROUPS
from isaac_appo.config.errors import ConfigError
from isaac_appo.config.option import rules_of
from isaac_appo.config.read import Findings, default_of, read_section
from isaac_appo.config.schema import RunConfig
from isaac_appo.config.suggest import nearest
from isaac_appo.config.validate import validate

Options = TypeVar("Options")


def split_options(section: Type[Options], argv: Sequence[str], help_text: str = "") -> Tuple[Options, List[str]]:
    """A command's own `KEY=VALUE` words as its typed options, and all other words. Raises ConfigError.

    `--help` prints `help_text` and the options, and raises SystemExit(0).
    """
    if {"-h", "--help"} & set(argv):
        print(help_text)
        for item in fields(section):  # type: ignore[arg-type]
            print(f"  {f'{item.name}={default_of(item)}':<26} {rules_of(item)['help']}")
        raise SystemExit(0)
    defaults = {item.name: default_of(item) for item in fields(section)}  # type: ignore[arg-type]
    own: Dict[str, Any] = {}
    rest: List[str] = []
    for word in argv:
        key, equals, value = word.partition("=")
        key = key.lstrip("+")
        if not equals or key not in defaults:
            rest.append(word)
        else:  # YAML's reading of a value, except where the option is text: a path may look like anything
            own[key] = value if isinstance(defaults[key], str) else yaml.safe_load(value)
    found = Findings(lambda path: nearest(path, list(defaults)))
    options = read_section(section, own, "", found)
    if found.errors:
        raise ConfigError(found.errors)
    return options, rest


def find_checkpoint(checkpoint: str, run_root: str) -> str:
    """`latest` as the newest run under `run_root`, any other value as it is. Raises ConfigError if there is no run."""
    if checkpoint != "latest":
        return checkpoint
    link = Path(run_root).expanduser() / "latest"
    if not link.exists():
        fix = "Train first, name run_root=FOLDER, or checkpoint=FILE"
        raise ConfigError([f"checkpoint = latest: {link} does not exist. {fix}"])
    return str(link.resolve())


def run_of(checkpoint: str) -> Optional[Path]:
    """The run directory that `checkpoint`, a file or a folder, lies in or is."""
    path = Path(checkpoint).expanduser().absolute()
    for folder in (path, *list(path.parents)[:2]):
        if (folder / "config.yaml").is_file() and (folder / "run.json").is_file():
            return folder
    return None


def engine_of(run: Path) -> str:
    """The engine that a run was trained on; '' where an older run does not say."""
    return str(json.loads((run / "run.json").read_text(encoding="utf-8")).get("engine", ""))


def config_for(run: Optional[Path], words: Sequence[str], command: str) -> RunConfig:
    """The run's stored configuration with `words` on top, or what `words` compose where there is no run or a word
    chooses another task, network or schedule; `--config-dir` says where the task's own file is. Raises ConfigError."""
    errors: List[object] = []
    arguments = parse_arguments(words, errors)
    plain = [word for word in arguments.overrides if not word.startswith("hydra.searchpath=")]
    chosen = any(word.lstrip("+").partition("=")[0] in GROUPS and not word.startswith("sim=") for word in plain)
    if run is None or chosen or errors or arguments.show_config or any(word.startswith("~") for word in plain):
        return compose(words, command).config
    make_importable(arguments.overrides)
    cfg = OmegaConf.load(run / "config.yaml")
    assert isinstance(cfg, DictConfig)
    # how the run was started does not matter any more
    for key, value in {"checkpoint": "", "resume": "auto", "test": False, **dict(map(_override, plain))}.items():
        OmegaConf.update(cfg, key, value, force_add=True)
    return validate(cfg)[0]


def _override(word: str) -> Tuple[str, Any]:
    try:
        override = OverridesParser.create().parse_override(word)
    except HydraException as error:
        raise ConfigError([f"{word}: cannot be read. Write KEY=VALUE, and quote a value with special signs"]) from error
    key = override.key_or_group
    return ("sim.name" if key == "sim" else key), override.value()
