"""``isaac-appo play`` and ``demo`` as a user runs them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import List

import pytest
import torch

from isaac_appo.checkpoint import load_checkpoint
from isaac_appo.commands.main import main
from isaac_appo.commands.play import PlayOptions
from isaac_appo.commands.stored import config_for, engine_of, find_checkpoint, run_of, split_options
from isaac_appo.config.errors import ConfigError
from isaac_appo.sim import registry
from isaac_appo.tasks.base import asset
from tests.helpers import can_film

SMALL = [
    "task=Cartpole",
    "num_envs=32",
    "task.env.episodeLength=60",
    "train.params.config.horizon_length=8",
    "train.params.config.minibatch_size=64",
    "train.params.network.mlp.units=[8,8]",
    "max_iterations=2",
    "eval.num_envs=5",
    "report.console=off",
    "report.plot=False",
    "report.tensorboard=False",
]
FILM = pytest.mark.skipif(not can_film(), reason="no encoder, or neither EGL nor OSMesa")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("runs")
    assert main(["train", *SMALL, f"run_root={root}"]) == 0
    return root


def lines_of(capsys: pytest.CaptureFixture[str]) -> List[str]:
    return capsys.readouterr().out.splitlines()


def earned(lines: List[str]) -> str:
    return next(line for line in lines if re.match(r"(trained|zero|random): return ", line))


def test_the_checkpoint_alone_says_the_task_and_the_network(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = root / "Cartpole" / "default" / "s42"
    results = []
    for checkpoint in (run / "checkpoints" / "ckpt_000000002.pth", run, "latest"):
        assert main(["play", f"checkpoint={checkpoint}", f"run_root={root}"]) == 0
        lines = lines_of(capsys)
        assert lines[0].startswith("Task: Cartpole. Engine: sim=mujoco on cpu") and lines[1].endswith("version 2")
        results.append(earned(lines))
    assert results[0] == results[1] == results[2]
    assert "5 episodes, one per environment, deterministic policy, seed 1234567" in results[0]
    stored = json.loads((run / "run.json").read_text())["evaluation"]  # the run's own evaluation at its end
    assert f"return {stored['mean']:.1f} +- {stored['std']:.1f}" in results[0]


def test_words_replace_what_is_stored(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["checkpoint=latest", f"run_root={root}", "agent=zero"]
    assert main(["play", *words, "num_envs=3", "seed=5", "task.env.resetDist=0.000001"]) == 0
    line = earned(lines_of(capsys))
    assert "return -2.0 +- 0.0" in line and "length 1.0, 3 episodes" in line and "zero actions, seed 5" in line


def test_train_test_true_says_the_same(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"checkpoint={root}/Cartpole/default/s42", f"run_root={root}"]
    assert main(["play", *words]) == 0
    played = earned(lines_of(capsys)).partition(" ")[2]
    assert main(["train", *SMALL, *words, "test=True"]) == 0
    assert lines_of(capsys)[-1].endswith(f"update 2: {played}")


def test_agents_without_a_policy_need_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["task=Cartpole", "num_envs=8", "task.env.episodeLength=40", f"run_root={tmp_path}"]
    results = []
    for agent in ("zero", "random", "random"):
        assert main(["play", *words, f"agent={agent}"]) == 0
        results.append(earned(lines_of(capsys)))
    assert "uniformly random actions" in results[1] and results[1] == results[2]
    assert results[0].partition(":")[2] != results[1].partition(":")[2]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["agent=nobody"], "agent = nobody: must be one of trained, zero, random"),
        (["checkpoint=latest", "run_root=/nowhere"], "/nowhere/latest does not exist. Train first"),
        (["checkpoint=/nowhere/x.pth", "task=Cartpole"], "checkpoint=/nowhere/x.pth: /nowhere/x.pth does not exist"),
        (["num_envs=-1"], "num_envs = -1: must be at least 0"),
    ],
)
def test_what_is_wrong_is_said(words: List[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", *words]) == 2
    assert text in capsys.readouterr().err


def test_a_policy_of_another_task_is_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "checkpoint=latest", f"run_root={root}", "task=Ant", "num_envs=1"]) == 2
    assert "does not fit train.params.network and task=Ant" in capsys.readouterr().err


def test_a_path_is_taken_as_it_is_and_numbers_are_read() -> None:
    options, rest = split_options(PlayOptions, ["checkpoint=a=b [1].pth", "num_envs=7", "task=Ant", "video=true"])
    assert (options.checkpoint, options.num_envs, options.video) == ("a=b [1].pth", 7, True)
    assert rest == ["task=Ant"]
    with pytest.raises(ConfigError, match="video = maybe: must be True or False"):
        split_options(PlayOptions, ["video=maybe"])


def test_the_play_settings_of_a_task_replace_its_own(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["checkpoint=latest", f"run_root={root}", "+task.play.episodeLength=11", "agent=zero"]
    assert main(["play", *words]) == 0
    assert "length 10.0" in earned(lines_of(capsys))  # the first step of an episode is its reset


def test_another_engine_than_trained_on_gives_both_rows(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(find_checkpoint("latest", str(root)))
    assert run is not None and engine_of(run) == "mujoco"
    other = registry.ENGINES["mujoco"]._replace(text="the same under another name")
    monkeypatch.setitem(registry.ENGINES, "other", other)
    record = run / "run.json"
    stored = record.read_text()
    try:
        record.write_text(stored.replace('"engine": "mujoco"', '"engine": "other"'))
        assert main(["play", "checkpoint=latest", f"run_root={root}"]) == 0
    finally:
        record.write_text(stored)
    lines = lines_of(capsys)
    at = lines.index("Sim to sim:")
    assert re.match(r"  other   \(trained on\)  return ", lines[at + 1])
    assert re.match(r"  mujoco  \(played on\)   return ", lines[at + 2])
    assert lines[at + 1].split("return")[1] == lines[at + 2].split("return")[1]


@FILM
def test_a_film_goes_into_the_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "checkpoint=latest", f"run_root={root}", "video=true", "length=8"]) == 0
    film = root / "Cartpole" / "default" / "s42" / "videos" / "Cartpole_trained_000000002.mp4"
    assert lines_of(capsys)[-1] == f"Video: {film}" and film.stat().st_size > 500
    imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")
    assert imageio_ffmpeg.count_frames_and_secs(str(film))[0] == 4  # every second step


@FILM
def test_the_demo_films_the_shipped_ant_which_walks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["demo", "num_envs=2", "length=6", "task.env.episodeLength=150"]) == 0
    lines = lines_of(capsys)
    mean = float(re.search(r"return ([-\d.]+)", earned(lines)).group(1))  # type: ignore[union-attr]
    assert mean > 300  # standing still for 149 steps pays 134
    assert lines[-1] == "Video: ant.gif" and (tmp_path / "ant.gif").stat().st_size > 1000


def test_the_demo_walks_without_an_encoder_and_says_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["demo", "num_envs=1", "task.env.episodeLength=20"]) == 0
    lines = lines_of(capsys)
    assert lines[0].startswith("No film: ") and "pip install imageio-ffmpeg" in lines[0] and earned(lines)


def test_what_is_shipped_is_small_and_plain() -> None:
    path = Path(asset("demo/Ant.pth"))
    state = load_checkpoint(path)
    assert path.stat().st_size < 400_000
    assert set(state) == {"model", "epoch", "frame", "last_mean_rewards", "env_state"}
    assert all(type(tensor) is torch.Tensor for tensor in state["model"].values())


def test_a_stored_configuration_outlives_a_change_of_defaults(root: Path) -> None:
    run = run_of(find_checkpoint("latest", str(root)))
    config = config_for(run, ["sim=mujoco", "train.params.config.clip_actions=False"], "play")
    assert (config.sim.name, config.ppo.clip_actions, config.num_envs) == ("mujoco", False, 32)
    assert config.train.params.network["mlp"]["units"] == [8, 8]
    with pytest.raises(ConfigError, match=r"eval\.num_env"):
        config_for(run, ["eval.num_env=3"], "play")
