"""Evaluation and films beside training: nothing about training changes, and the best is what evaluated best."""

from __future__ import annotations

import csv
import json
import re
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from isaac_appo.build import model_maker
from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import main
from isaac_appo.evaluation import Evaluation, evaluate
from isaac_appo.evaluator import Due, Evaluator, Job
from isaac_appo.play.agent import load_model
from isaac_appo.play.session import build_play_env, load_policy
from tests.helpers import can_film

SMALL = [
    "task=Cartpole",
    "num_envs=32",
    "task.env.episodeLength=60",
    "train.params.config.horizon_length=8",
    "train.params.config.minibatch_size=64",
    "train.params.config.mini_epochs=1",
    "train.params.config.save_best_after=0",
    "eval.num_envs=4",
    "report.console=off",
    "report.plot=False",
    "report.tensorboard=False",
]

START = Evaluator.start


def train(root: Path, *more: str) -> Path:
    assert main(["train", *SMALL, f"run_root={root}", *more]) == 0
    return root / "Cartpole" / "default" / "s42"


def make_evaluator(tmp_path: Path, *more: str) -> Evaluator:
    config = compose([*SMALL, *more]).config
    return Evaluator(config, model_maker(config, 4, 1)(), tmp_path, lambda: 7)


def job(evaluator: Evaluator, tmp_path: Path, shift: float = 0.0, film: bool = False) -> Job:
    state = {name: tensor + shift for name, tensor in model_maker(evaluator.config, 4, 1)().state_dict().items()}
    return Job(5, 4, state, Due(not film, film), tmp_path / "ckpt_000000005.pth")


def test_training_is_the_same_to_the_bit_with_and_without(tmp_path: Path) -> None:
    beside = train(tmp_path / "a", "max_iterations=12", "eval.every=3")
    alone = train(tmp_path / "b", "max_iterations=12", "eval.enabled=False")
    states = [torch.load(run / "checkpoints" / "ckpt_000000012.pth", weights_only=True) for run in (beside, alone)]
    for name, tensor in states[0]["model"].items():
        assert torch.equal(tensor, states[1]["model"][name]), name
    assert "Evaluation of version 3, " in (beside / "log.txt").read_text()


def start_and_wait(self: Evaluator, job: Job) -> None:
    """`Evaluator.start`, and its end."""
    START(self, job)
    assert self._thread is not None
    self._thread.join()


def test_the_best_is_chosen_by_evaluation_and_is_still_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # all results come at the very end, when the files would have been pruned long ago
    take = Evaluator.take_results
    monkeypatch.setattr(Evaluator, "start", start_and_wait)
    monkeypatch.setattr(Evaluator, "take_results", lambda self: take(self) if len(self._results) == 4 else [])
    small = ["train.params.config.save_frequency=1", "keep_checkpoints=2", "eval.enabled=False"]
    run = train(tmp_path, "max_iterations=9", "eval.every=2", *small)
    best = json.loads((run / "checkpoints" / "best.json").read_text())
    said = re.findall(r"Evaluation of version (\d), \d versions ago: return (-?[\d.]+)", (run / "log.txt").read_text())
    assert [version for version, _ in said] == ["2", "4", "6", "8"]
    assert (str(best["step"]), f"{best['metric']:.1f}") == max(said, key=lambda item: float(item[1]))
    assert best["by"] == "evaluation"
    policy = load_policy(str(run / "checkpoints" / "best.json"))
    assert policy.state["epoch"] == best["step"] == policy.version
    config = compose(SMALL).config
    env = build_play_env(config)
    again = evaluate(load_model(config, policy.state, 4, 1), env, config.eval.seed)
    assert again.mean == pytest.approx(best["metric"], rel=1e-5)


def test_the_evaluation_at_the_end_may_be_the_best(tmp_path: Path) -> None:
    run = train(tmp_path, "max_iterations=2", "eval.every=5")
    best = json.loads((run / "checkpoints" / "best.json").read_text())
    assert best["metric"] == json.loads((run / "run.json").read_text())["evaluation"]["mean"]


def test_without_it_the_best_is_chosen_by_the_training_mean(tmp_path: Path) -> None:
    run = train(tmp_path, "max_iterations=6")
    best = json.loads((run / "checkpoints" / "best.json").read_text())
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert best["by"] == "training" and best["metric"] == pytest.approx(float(rows[-1]["rewards/step"]))


def test_the_result_is_logged_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Evaluator, "start", start_and_wait)
    run = train(tmp_path, "max_iterations=9", "eval.every=4", "eval.enabled=False")
    with open(run / "metrics.csv") as file:
        rows = list(csv.DictReader(file))
    found = [(int(row["update"]), int(row["eval/version"])) for row in rows if row["eval/version"]]
    assert found == [(5, 4), (9, 8)]
    assert all(0 < float(row["eval/length"]) <= 60 for row in rows if row["eval/version"])


def test_the_same_version_gives_the_same_result_each_time_and_another_one_another(tmp_path: Path) -> None:
    evaluator = make_evaluator(tmp_path, "eval.every=1")
    for shift in (0.0, 0.0, 0.3):
        evaluator.start(job(evaluator, tmp_path, shift))
        evaluator._thread.join()  # type: ignore[union-attr]
    first, second, third = (result.evaluation for result in evaluator.take_results())
    assert isinstance(first, Evaluation) and first == second and first != third
    assert evaluator.take_results() == []
    evaluator.close(wait=True)


def test_what_is_due(tmp_path: Path) -> None:
    evaluator = make_evaluator(tmp_path, "eval.every=3")
    assert [u for u in range(1, 11) if evaluator.due(u).evaluate] == [3, 6, 9]
    evaluator.resume_at(6)
    assert [u for u in (7, 8, 9, 10) if evaluator.due(u).evaluate] == [9]
    evaluator.resume_at(0)
    assert [u for u in (5, 7) if evaluator.due(u).evaluate] == [5, 7]  # boundaries between were not published
    evaluator.close(wait=True)


def test_one_job_at_a_time_and_the_rest_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluator, go = make_evaluator(tmp_path, "eval.every=1"), threading.Event()
    monkeypatch.setattr(evaluator, "_evaluate", lambda: go.wait(60))
    evaluator.start(job(evaluator, tmp_path))
    assert [any(evaluator.due(u)) for u in (6, 7)] == [False, False] and evaluator.skipped == 2
    go.set()
    evaluator._thread.join()  # type: ignore[union-attr]
    assert evaluator.due(8).evaluate and evaluator.skipped == 2
    evaluator.close(wait=True)


def test_the_end_of_a_run_cuts_an_evaluation_short(tmp_path: Path) -> None:
    evaluator, steps = make_evaluator(tmp_path, "eval.every=1"), []
    step, reached = evaluator._env.step, threading.Event()

    def counted(actions: torch.Tensor) -> Any:
        steps.append(1)
        reached.set()
        evaluator._ending.wait(60)
        return step(actions)

    evaluator._env.step = counted  # type: ignore[method-assign]
    evaluator.start(job(evaluator, tmp_path))
    assert reached.wait(60)
    evaluator.close(wait=False)
    assert len(steps) == 1 and evaluator.take_results() == []


def test_a_failure_is_a_result_and_training_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Evaluator) -> Evaluation:
        raise ZeroDivisionError("the evaluation")

    monkeypatch.setattr(Evaluator, "_evaluate", broken)
    run = train(tmp_path, "max_iterations=5", "eval.every=2", "eval.enabled=False")
    log = (run / "log.txt").read_text()
    assert "WARNING: evaluation or film of version 2 failed: ZeroDivisionError: the evaluation" in log
    assert json.loads((run / "run.json").read_text())["status"] == "complete"


@pytest.mark.skipif(not can_film(), reason="no encoder, or neither EGL nor OSMesa")
def test_films_are_made_beside_training(tmp_path: Path) -> None:
    words = ["capture_video=True", "capture_video_freq=800", "capture_video_len=6", "max_iterations=4"]
    run = train(tmp_path, *words)
    films = sorted((run / "videos").iterdir())
    assert [film.name for film in films] == ["update_000000001.mp4"] and films[0].stat().st_size > 1000
    assert "Video of version 1: " in (run / "log.txt").read_text()


def test_films_that_cannot_be_made_are_refused_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert main(["train", *SMALL, f"run_root={tmp_path}", "max_iterations=2", "capture_video=True"]) == 2
    assert "pip install imageio-ffmpeg" in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.pth"))
