"""The whole bench on a tiny problem with an injected budget, and what is computed from given blocks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from isaac_appo.bench import suite
from isaac_appo.bench.load import Limits, Load
from isaac_appo.bench.rounds import Plan, Records
from isaac_appo.bench.scenario import parse_scenario
from isaac_appo.bench.window import STAGES, Block, Effort
from isaac_appo.commands import bench
from isaac_appo.commands.main import main
from tests.bench.test_scenario import SMALL

INF = float("inf")
ANY_LOAD = Limits(INF, INF)
NAMES = ["sim_1", "raw_1", "collect_1", "learn_1", "sync_1_1", "lockstep_lag1_1_1", "rl_games_1_1"]


def inject(monkeypatch: pytest.MonkeyPatch, limits: Limits = ANY_LOAD, min_accepted: int = 1) -> None:
    """Two rounds of tiny blocks, whatever the options say; the memory probes are left out."""
    settings = suite.Settings(Plan(1000.0, min_accepted, max_rounds=2), Effort(1, 1), limits)
    monkeypatch.setattr(bench, "suite_settings", lambda *options: settings)
    monkeypatch.setattr(suite, "other_load_now", lambda: None)  # a system that does not tell


def run(folder: Path, *more: str) -> int:
    return main(["bench", "--quick", "--scenarios", ",".join(NAMES), "--out", str(folder), *SMALL, *more])


def test_the_command_leaves_a_complete_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inject(monkeypatch)
    assert run(tmp_path) == 0
    report = json.loads((tmp_path / "report.json").read_text())
    fields = {"schema", "failed", "warnings", "problem", "machine", "settings", "scenarios", "overlap", "comparisons"}
    assert set(report) == fields | {"blocks", "overrides"} and report["failed"] == ""
    assert report["problem"]["task"] == "Cartpole" and report["problem"]["rows"] == 32
    assert {"cpu", "cores", "versions", "python"} <= set(report["machine"]) and report["machine"]["cores"] >= 1
    assert set(report["machine"]["versions"]) == {"torch", "warp-lang", "mujoco", "rl-games", "numpy"}
    assert list(report["scenarios"]) == NAMES and report["overrides"] == SMALL
    for name, s in report["scenarios"].items():
        assert s["accepted"] == 2 and s["rejected"] == [] and set(s["threads"]) == {"physics", "policy", "learner"}
        assert s["fps"]["low"] <= s["fps"]["median"] <= s["fps"]["high"] and s["fps"]["n"] == 2
        assert s["core_s_per_sample"]["median"] > 0
        stages = s["core_s_per_sample_by_stage"]
        assert set(stages) == set(STAGES) if name not in ("sim_1", "raw_1") else stages is None
        assert [(b["round"], b["accepted"]) for b in report["blocks"][name]] == [(0, True), (1, True)]
    overlap = report["overlap"]["lockstep_lag1_1_1"]
    assert set(overlap) == {"S", "O", "H", "R", "R_best_sim", "bound", "share_of_bound"}
    assert all(overlap[key]["n"] == 2 for key in ("S", "O", "H", "R"))
    assert set(report["comparisons"]) == {
        "lockstep_lag1_1_1 / best sync", "lockstep_lag1_1_1 / best rl_games", "sim_1 / raw_1"
    }  # fmt: skip
    assert (tmp_path / "report.png").read_bytes()[:4] == b"\x89PNG"
    out, markdown = capsys.readouterr().out, (tmp_path / "report.md").read_text()
    assert markdown in out and "Warning: this system has no /proc/stat" in markdown and len(report["warnings"]) == 1
    for name in (*NAMES, "| S | O | H | R |", "Core-microseconds per sample"):
        assert name in markdown


def test_a_disturbed_bench_fails_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    inject(monkeypatch, Limits(wall_per_cpu=0.0, other_cores=INF))
    assert run(tmp_path) == 1
    report = json.loads((tmp_path / "report.json").read_text())
    assert "sync_1_1: 0 of 2 blocks accepted" in report["failed"] and "lockstep" not in report["failed"]
    assert report["scenarios"]["sync_1_1"]["fps"] is None
    assert "wall/CPU" in report["scenarios"]["sync_1_1"]["rejected"][0]["reason"]
    assert "fewer than 1 accepted" in capsys.readouterr().err
    assert "**FAILED**" in (tmp_path / "report.md").read_text()


def test_wrong_scenarios_and_overrides_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--scenarios", "sim", "--out", str(tmp_path), *SMALL]) == 2
    assert "no scenario is called sim" in capsys.readouterr().err
    assert main(["bench", "--fast", "num_envz=3"]) == 2
    err = capsys.readouterr().err
    assert "--fast" in err and "num_envz" in err
    assert main(["bench", "--time-to-return", "5", "--seeds", "1,x", *SMALL]) == 2
    assert "--seeds 1,x" in capsys.readouterr().err


def test_what_cannot_run_on_a_problem_is_left_out_and_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inject(monkeypatch)
    assert run(tmp_path, "num_envs=31", "train.params.config.horizon_length=1") == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert list(report["scenarios"]) == NAMES[:-1]
    assert any("left out rl_games: rl_games needs a minibatch_size that divides" in text for text in report["warnings"])


def test_without_a_task_it_is_ant_with_1024_envs() -> None:
    default = bench.with_default_problem(["schedule.lag=2"])
    assert default == ["num_envs=1024", "train.params.config.minibatch_size=4096", "schedule.lag=2"]
    assert bench.with_default_problem(["num_envs=64"]) == ["train.params.config.minibatch_size=4096", "num_envs=64"]
    assert bench.with_default_problem(["task=Cartpole"]) == ["task=Cartpole"]


def test_quick_and_default_settings() -> None:
    quick, default = bench.suite_settings(True, None, None, 0), bench.suite_settings(False, None, None, 5)
    assert quick.plan.budget_s <= 105 and default.plan.budget_s == 600 and default.plan.seed == 5
    assert default.effort.updates >= 20 and default.effort.warmup >= 1 and default.plan.min_accepted == 3
    assert bench.suite_settings(True, 0.5, 7, 0) == quick._replace(
        plan=quick.plan._replace(budget_s=30.0), effort=quick.effort._replace(updates=7)
    )


def records(times: Dict[str, List[float]]) -> Records:
    stages = {**dict.fromkeys(STAGES, 0.0), "minibatch": 0.2}

    def block(seconds: float) -> Block:
        return Block(seconds, 10, Load(10 * seconds, 5.0, 0.0), stages)

    return {name: [block(s) for s in rows] for name, rows in times.items()}


def test_ratios_from_given_blocks() -> None:
    times = {
        "sim_1": [0.1, 0.1], "sim_2": [0.05, 0.05], "raw_1": [0.09, 0.09], "collect_1": [0.3, 0.3],
        "learn_1": [0.4, 0.4], "lockstep_lag1_1_1": [0.5, 0.4], "sync_1_1": [0.8, 0.8], "sync_2_1": [0.6, 0.6],
        "rl_games_1_1": [1.0, 1.0], "rl_games_2_2": [2.0, 2.0],
    }  # fmt: skip
    scenarios = {name: parse_scenario(name) for name in times}
    found: Dict[str, Any] = suite.evaluate(scenarios, records(times), rows=1000, cores=2)
    summary = found["scenarios"]["lockstep_lag1_1_1"]
    assert summary["fps"] == {"median": pytest.approx(2250), "low": 2000, "high": 2500, "n": 2}
    assert summary["core_s_per_sample"]["median"] == pytest.approx(5.0 / 10 / 1000)
    assert summary["core_s_per_sample_by_stage"]["minibatch"] == pytest.approx(0.0002)
    overlap = found["overlap"]["lockstep_lag1_1_1"]
    assert overlap["H"]["low"] == pytest.approx(0.2 / 0.3) and overlap["H"]["high"] == pytest.approx(1.0)
    assert overlap["R"]["high"] == pytest.approx(0.25) and overlap["R_best_sim"]["high"] == pytest.approx(0.125)
    assert overlap["bound"] == {"update_s": 0.4, "fps": 2500, "by": "learn"}
    assert overlap["share_of_bound"]["low"] == pytest.approx(0.8)
    sync, theirs = (found["comparisons"][f"lockstep_lag1_1_1 / best {kind}"] for kind in ("sync", "rl_games"))
    assert sync["to"] == "sync_2_1" and sync["median"] == pytest.approx((1.2 + 1.5) / 2)
    assert theirs["to"] == "rl_games_1_1" and theirs["high"] == pytest.approx(2.5)
    assert found["comparisons"]["sim_1 / raw_1"]["median"] == pytest.approx(0.9)
    assert "sim_2 / raw_2" not in found["comparisons"]
