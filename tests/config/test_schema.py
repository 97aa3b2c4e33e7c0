from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, Tuple, get_type_hints

import pytest
from omegaconf import OmegaConf

import isaac_appo.cfg
from isaac_appo.commands.compose import compose
from isaac_appo.config.option import option, rules_of, walk
from isaac_appo.config.read import default_of
from isaac_appo.config.schema import RunConfig
from isaac_appo.config.suggest import nearest, nearest_path

CFG = Path(isaac_appo.cfg.__file__).parent

# What a user may type at top level. A new key is a decision: change this list with it.
TOP_LEVEL = [
    "task_name",
    "experiment",
    "num_envs",
    "seed",
    "torch_deterministic",
    "max_iterations",
    "sim_device",
    "rl_device",
    "headless",
    "test",
    "checkpoint",
    "resume",
    "run_root",
    "keep_checkpoints",
    "task",
    "train",
    "sim",
    "schedule",
    "advantage",
    "loss",
    "env",
    "report",
    "eval",
    "physics_engine",
    "pipeline",
    "graphics_device_id",
    "num_threads",
    "solver_type",
    "num_subscenes",
    "force_render",
    "sigma",
    "multi_gpu",
    "capture_video",
    "capture_video_freq",
    "capture_video_len",
    "wandb",
    "wandb_activate",
    "wandb_group",
    "wandb_name",
    "wandb_entity",
    "wandb_project",
    "wandb_tags",
    "wandb_logcode_dir",
    "wandb_artifacts",
]


def all_fields(section: Any = RunConfig) -> Iterator[Tuple[Any, Any, Any]]:
    hints = get_type_hints(section)
    for item in fields(section):
        yield section, item, hints[item.name]
        if is_dataclass(hints[item.name]):
            yield from all_fields(hints[item.name])


def keys(tree: Dict[Any, Any], prefix: str = "") -> Iterator[str]:
    for name, value in tree.items():
        yield f"{prefix}{name}"
        if isinstance(value, dict):
            yield from keys(value, f"{prefix}{name}.")


def test_the_command_line_surface_is_frozen() -> None:
    assert [item.name for item in fields(RunConfig)] == TOP_LEVEL
    assert set(compose([]).cfg) == set(TOP_LEVEL)


@pytest.mark.parametrize("folder", ["task", "train", "sim", "schedule", "advantage", "loss"])
def test_every_yaml_key_has_a_schema(folder: str) -> None:
    known = {path for path, *_ in walk(RunConfig)}
    free = ("task.env.", "train.params.network.")
    files = sorted((CFG / folder).glob("*.yaml"))
    assert files
    for file in files:
        tree = OmegaConf.to_container(OmegaConf.load(file))
        assert isinstance(tree, dict)
        unknown = [key for key in keys(tree, f"{folder}.") if key not in known and not key.startswith(free)]
        assert unknown == [], file.name


def test_every_key_has_help_and_a_default_that_keeps_its_own_rules() -> None:
    from isaac_appo.config.read import _broken_rule

    resolved = {("RunConfig", "num_envs"), ("RunConfig", "max_iterations")}  # 0 until they are resolved
    for section, item, hint in all_fields():
        assert rules_of(item)["help"], item.name
        if not is_dataclass(hint) and (section.__name__, item.name) not in resolved:
            assert _broken_rule(rules_of(item), default_of(item)) is None, item.name


def test_yaml_defaults_equal_schema_defaults() -> None:
    config, fresh = compose([]).config, RunConfig()
    for name in ("env", "report", "eval", "advantage", "loss", "sim", "seed", "run_root", "keep_checkpoints", "resume"):
        assert getattr(config, name) == getattr(fresh, name), name


def test_two_configs_share_no_mutable_default() -> None:
    first, second = RunConfig(), RunConfig()
    first.task.env["numEnvs"] = 3
    first.wandb_tags.append("x")
    assert second.task.env == {} and second.wandb_tags == []


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(TypeError, match=r"unknown rules \['minimum'\]"):
        option(1, "a number", minimum=0)


def test_nearest_ignores_case_and_gives_up_on_what_is_far() -> None:
    assert nearest("ant", ["Ant", "Cartpole"]) == "Ant"
    assert nearest("humanoid", ["Ant", "Cartpole"]) is None


def test_nearest_path_prefers_the_same_name_elsewhere_then_beside_then_anywhere() -> None:
    assert nearest_path("b.lag", ["b.lags", "a.lag"]) == "a.lag"
    assert nearest_path("a.lagg", ["b.laggy", "a.lags"]) == "a.lags"
    assert nearest_path("thread", ["seed", "b.threads"]) == "b.threads"
    assert nearest_path("a.qqqq", ["seed", "a.lag"]) is None
