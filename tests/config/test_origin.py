from __future__ import annotations

from pathlib import Path
from typing import Dict

import pytest
import yaml
from omegaconf import OmegaConf

from isaac_appo.commands.compose import compose


def origins_of(text: str) -> Dict[str, str]:
    """Dotted key -> comment, read back from annotated YAML."""
    found, sections = {}, []
    for line in text.splitlines():
        depth = (len(line) - len(line.lstrip())) // 2
        key, _, comment = line.strip().partition("  # ")
        sections[depth:] = [key.partition(":")[0]]
        if comment:
            found[".".join(sections)] = comment
    return found


def test_every_value_says_where_it_comes_from() -> None:
    composed = compose(["task=Cartpole", "task.env.maxEffort=9", "seed=7", "num_envs=8", "schedule=sync"])
    found = origins_of(composed.annotated())
    assert found["task.env.maxEffort"] == found["seed"] == "command line"
    assert found["task.env.resetDist"] == "task/Cartpole.yaml"
    assert found["task.env.numEnvs"] == "task/Cartpole.yaml: ${resolve_default:512,${...num_envs}}"
    assert found["train.params.seed"] == "train/CartpolePPO.yaml: ${...seed}"
    assert found["schedule.lag"] == "schedule/sync.yaml"
    assert found["eval.num_envs"] == found["run_root"] == "config.yaml"
    assert {text.partition(":")[0] for text in found.values()} >= {"loss/decoupled.yaml", "sim/auto.yaml"}
    assert "default" not in found.values()


def test_a_whole_section_from_the_command_line() -> None:
    found = origins_of(compose(["+task.env.mine={a: {b: 1}, c: [1, 2]}"]).annotated())
    assert found["task.env.mine.a.b"] == found["task.env.mine.c"] == "command line"


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["task=Cartpole", "num_envs=8", "checkpoint=/a b/c#d.pth", "wandb_tags=[a,'b: c']"],
        ['+task.env.mine={a.b: 1, 2: x, e: [], on: {}, text: "it\'s # not"}'],
    ],
)
def test_it_reads_back_as_the_configuration(words: list) -> None:
    composed = compose(words)
    assert yaml.safe_load(composed.annotated()) == OmegaConf.to_container(composed.cfg, resolve=True)


def test_a_users_own_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "schedule").mkdir()
    (tmp_path / "schedule" / "mine.yaml").write_text("defaults:\n  - lockstep\nlag: 3\n")
    found = origins_of(compose(["schedule=mine", "--config-dir", str(tmp_path)]).annotated())
    assert found["schedule.lag"] == "schedule/mine.yaml" and found["schedule.fallback"] == "schedule/lockstep.yaml"


def test_it_is_shown_with_and_without_references_resolved(capsys: pytest.CaptureFixture[str]) -> None:
    for options, line in (
        (["--resolve"], "    numEnvs: 64  # task/Ant.yaml: ${resolve_default:4096,${...num_envs}}\n"),
        ([], "    numEnvs: ${resolve_default:4096,${...num_envs}}  # task/Ant.yaml\n"),
    ):
        with pytest.raises(SystemExit) as stop:
            compose(["--cfg", "job", "--origin", "num_envs=64", *options])
        assert stop.value.code == 0
        assert line in capsys.readouterr().out
