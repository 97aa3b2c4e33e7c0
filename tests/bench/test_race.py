"""Time to a return: the clock, the hold, the arithmetic, and one whole race on Cartpole."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Dict, List, Optional

import pytest

from isaac_appo.bench import race
from isaac_appo.bench.race import Hold, Race, finish, run_ours, summarise
from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import main
from tests.bench.test_scenario import SMALL

RACE = [*SMALL, "max_iterations=6", "eval.num_envs=4", "task.env.episodeLength=20"]


def test_the_clock_stands_still_while_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([10.0, 13.0, 50.0, 52.0, 99.0])
    monkeypatch.setattr(race, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    monkeypatch.setattr(race, "evaluate", lambda *args: SimpleNamespace(mean=7.0))
    judge = race.Judge(compose(RACE, "bench").config, Race(target=7.5, every=1, cores=1))
    judge.go()
    assert not judge.reached(1, SimpleNamespace) and not judge.reached(2, SimpleNamespace)
    judge.env.close()
    assert [point["seconds"] for point in judge.history] == [3.0, 5.0]


def test_a_closed_hold_waits_for_what_runs_and_lets_nothing_begin() -> None:
    hold, running, release = Hold(2), threading.Event(), threading.Event()
    done: List[int] = []

    def handler(worker: int, number: int) -> None:
        running.set()
        release.wait(10)
        done.append(number)

    first, second = (threading.Thread(target=hold.wrap("act", handler), args=(w, w)) for w in (0, 1))

    def begin_second_while_closing() -> None:
        while hold._go.is_set():
            time.sleep(0.001)
        second.start()
        second.join(0.05)
        release.set()

    first.start()
    assert running.wait(10)
    threading.Thread(target=begin_second_while_closing, daemon=True).start()
    with hold.closed():
        assert done == [0]  # closed only after the operation under way
        second.join(0.05)
        assert done == [0]
    for thread in (first, second):
        thread.join(10)
    assert done == [0, 1]


def test_finish_is_the_first_evaluation_that_reaches_the_target() -> None:
    history = [{"updates": 10 * i, "seconds": 1.5 * i, "return": r} for i, r in enumerate([0.0, 90.0, 110.0, 80.0])]
    assert finish(history, 100.0) == {"seconds": 3.0, "updates": 20, "return": 110.0}
    assert finish(history, 90.0)["seconds"] == 1.5
    assert finish(history, 500.0) == {"seconds": None, "updates": None, "return": None}


def runs(ours: List[Optional[float]], theirs: List[Optional[float]]) -> List[Dict[str, Any]]:
    return [
        {"system": system, "seed": seed, "seconds": seconds}
        for system, times in (("ours", ours), ("rl_games", theirs))
        for seed, seconds in enumerate(times, 1)
    ]


def test_medians_and_ratios_by_hand() -> None:
    found = summarise(runs([30.0, 40.0, 90.0], [60.0, 50.0, 100.0]))
    assert found["median_s"] == {"ours": 40.0, "rl_games": 60.0}
    assert found["ratio_of_medians"] == pytest.approx(2 / 3) and found["failed"] == ""
    assert found["ratio_by_seed"] == {"1": 0.5, "2": 0.8, "3": 0.9}


def test_a_target_that_is_not_reached_fails_and_names_the_run() -> None:
    found = summarise(runs([30.0, None], [60.0, 50.0]))
    assert "ours seed 2" in found["failed"] and found["median_s"] is None


@pytest.mark.parametrize("schedule", ["sync", "lockstep"])
def test_our_run_ends_at_the_target_and_holds_the_policy_meanwhile(
    schedule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = compose([*RACE, f"schedule={schedule}"], "bench").config
    steps: List[int] = []
    pipelines: List[race.WrappedPipeline] = []
    evaluate = race.evaluate

    class Watched(race.WrappedPipeline):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            pipelines.append(self)

    def watched(*args: Any) -> Any:
        collector = pipelines[0].workers[0].collector
        before = collector.global_step
        time.sleep(0.02)  # time for a policy stream that is not held to go on
        steps.append(collector.global_step - before)
        return evaluate(*args)

    monkeypatch.setattr(race, "WrappedPipeline", Watched)
    monkeypatch.setattr(race, "evaluate", watched)
    history = run_ours(config, Race(target=float("inf"), every=2, cores=1))
    assert [point["updates"] for point in history] == [2, 4, 6] and steps == [0, 0, 0]
    assert 0 < history[0]["seconds"] < history[1]["seconds"] < history[2]["seconds"]
    assert len(run_ours(config, Race(target=-1e9, every=2, cores=1))) == 1


def test_every_evaluation_plays_the_same_episodes() -> None:
    config = compose(RACE, "bench").config
    judge = race.Judge(config, Race(0.0, 1, 1))
    model = race.model_maker(config, judge.env.num_obs, judge.env.num_actions)()
    for updates in (1, 2):
        judge.reached(updates, lambda: model)
    judge.env.close()
    assert judge.history[0]["return"] == judge.history[1]["return"]


def test_a_whole_race(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(race, "other_load_now", lambda: 0.0)
    monkeypatch.setattr(race, "TRIAL", race.Effort(1, 1))
    monkeypatch.setattr("isaac_appo.budgets.available_cores", lambda: 1)
    words = ["bench", "--time-to-return", "1", "--seeds", "1,2", "--every", "2", "--out", str(tmp_path), *RACE]
    assert main(words) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert [(r["system"], r["seed"]) for r in report["runs"]] == [
        ("ours", 1), ("rl_games", 1), ("rl_games", 2), ("ours", 2)
    ]  # fmt: skip
    assert all(r["updates"] == 2 and r["return"] >= 1 and r["seconds"] > 0 for r in report["runs"])
    first = {(r["system"], r["seed"]): r["history"][0]["return"] for r in report["runs"]}
    assert first["ours", 1] != first["ours", 2]
    assert report["ratio_of_medians"] > 0 and report["failed"] == "" and set(report["ratio_by_seed"]) == {"1", "2"}
    assert "Medians: ours" in (tmp_path / "report.md").read_text() and (tmp_path / "report.png").stat().st_size > 0
    assert main([*words[:2], "1e9", *words[3:]]) == 1
    assert "was not reached by ours seed 1" in capsys.readouterr().err
