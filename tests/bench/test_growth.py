"""The fit, the budget and the sizes of the growth, with measurements that the test makes up."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from isaac_appo.bench import growth
from isaac_appo.bench.figure import growth_figure
from isaac_appo.bench.growth import Sweep, fit_line, growth_markdown, run_growth, sweeps
from isaac_appo.bench.probe import ProbeError, Request, measure, probe
from isaac_appo.bench.window import Effort
from tests.bench.test_scenario import SMALL

WORDS = ["task=Cartpole"]
PROBLEM = {"task": "Cartpole", "num_envs": 64, "horizon": 16, "epochs": 4, "minibatches": 4, "minibatch_size": 256,
           "network": [8], "substeps": 2}  # fmt: skip
PLAN = [Sweep("num_envs", (64, 128, 256), lambda n: [f"num_envs={n}"]), Sweep("width", (8, 16), lambda w: [f"w={w}"])]


def test_the_fit_finds_the_line_it_is_given() -> None:
    sizes = [64, 256, 1024, 16384]
    fit = fit_line(sizes, [0.003 + 2e-5 * n for n in sizes])
    assert fit["fixed_s"] == pytest.approx(0.003) and fit["per_unit_s"] == pytest.approx(2e-5)
    assert fit["worst"] < 1e-9
    assert fit_line([64, 64], [1.0, 1.0]) == {}


def test_the_fit_weighs_relative_errors() -> None:
    sizes = [1.0, 10.0, 10000.0]
    fit = fit_line(sizes, [2.0, 11.0, 11000.0])  # 1 + size, but the largest is 10 % off
    assert fit["fixed_s"] == pytest.approx(1.0, abs=0.1) and 0.0 < fit["worst"] < 0.1


class FakeMachine:
    """Measures in no time what takes ``seconds_per_env`` on its own clock."""

    def __init__(self, seconds_per_env: float) -> None:
        self.seconds_per_env, self.time = seconds_per_env, 0.0
        self.asked: List[List[str]] = []

    def __call__(self, request: Request) -> Dict[str, Any]:
        self.asked.append(request.overrides)
        size = int(request.overrides[-1].partition("=")[2])
        self.time += 8.0 + self.seconds_per_env * size
        times = {name: 0.001 + (1 + i) * 1e-5 * size for i, name in enumerate(request.scenarios)}
        return {"rows": 16 * size, "update_s": times, "peak_mib": 500.0 + size, "other_cores": 0.01}

    def now(self) -> float:
        return self.time


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growth, "other_load_now", lambda: 0.0)


def test_all_sizes_are_measured_and_fitted(tmp_path: Path) -> None:
    machine = FakeMachine(0.0)
    report = run_growth(WORDS, PROBLEM, 1000.0, measure=machine, now=machine.now, plan=PLAN)
    envs, width = report["sweeps"]["num_envs"], report["sweeps"]["width"]
    assert [p["size"] for p in envs["points"]] == [64, 128, 256] and not envs["skipped"]
    assert machine.asked[:2] == [["task=Cartpole", "num_envs=64"], ["task=Cartpole", "w=8"]]
    assert envs["fit"]["Ta"]["fixed_s"] == pytest.approx(0.001) and envs["fit"]["Tl"]["per_unit_s"] == pytest.approx(
        3e-5
    )
    assert width["fit"] == {} and envs["points"][0]["fps"] == pytest.approx(16 * 64 / 0.00164)
    growth_figure(report, tmp_path / "growth.png")
    assert (tmp_path / "growth.png").stat().st_size > 0
    assert "\nAround Cartpole, 64 envs, horizon 16, 4 epochs of 4 minibatches of 256" in growth_markdown(report)
    assert "| 256 |" in growth_markdown(report) and "1.00 ms + 0.01 ms x num_envs" in growth_markdown(report)


def test_what_does_not_fit_the_budget_is_left_out_and_named() -> None:
    machine = FakeMachine(1.0)  # 72 s, then 136 s, then 264 s that 300 s have no room for
    report = run_growth(WORDS, PROBLEM, 300.0, measure=machine, now=machine.now, plan=PLAN[:1])
    envs = report["sweeps"]["num_envs"]
    assert [p["size"] for p in envs["points"]] == [64, 128] and [s["size"] for s in envs["skipped"]] == [256]
    assert "of the budget are left" in envs["skipped"][0]["reason"] and machine.time < 300
    assert "- num_envs 256: it would take about" in growth_markdown(report)


def test_a_probe_that_fails_is_named_and_the_others_go_on() -> None:
    machine = FakeMachine(0.0)

    def flaky(request: Request) -> Dict[str, Any]:
        if "num_envs=128" in request.overrides:
            raise ProbeError("out of memory")
        return machine(request)

    envs = run_growth(WORDS, PROBLEM, 1000.0, measure=flaky, now=machine.now, plan=PLAN[:1])["sweeps"]["num_envs"]
    assert [p["size"] for p in envs["points"]] == [64, 256]
    assert envs["skipped"] == [{"size": 128, "reason": "failed: out of memory"}]


def test_the_number_of_minibatches_stays() -> None:
    envs, horizon, width = sweeps(PROBLEM)
    assert envs.overrides(128) == ["num_envs=128", "train.params.config.minibatch_size=512"]
    assert horizon.overrides(32) == ["train.params.config.horizon_length=32", "train.params.config.minibatch_size=512"]
    assert width.overrides(64) == ["train.params.network.mlp.units=[64,32,16]"]
    assert (envs.sizes[0], envs.sizes[-1]) == (64, 16384) and (width.sizes[0], width.sizes[-1]) == (64, 1024)
    assert (horizon.sizes[0], horizon.sizes[-1]) == (8, 128)


def test_a_probe_answers_from_a_process_of_its_own_and_tells_its_errors() -> None:
    answer = probe(Request(SMALL, ["lockstep_lag1_1_1"], Effort(1, 1)))
    assert answer["rows"] == 32 and answer["update_s"]["lockstep_lag1_1_1"] > 0 and 50 < answer["peak_mib"] < 20000
    with pytest.raises(ProbeError, match="no scenario is called nonsense"):
        probe(Request(SMALL, ["nonsense"], Effort(1, 1)))


def test_a_measurement_takes_the_peak_after_the_first_scenario() -> None:
    answer = measure(Request(SMALL, ["lockstep_lag1_1_1", "collect_1", "learn_1"], Effort(1, 2)))
    assert list(answer["update_s"]) == ["lockstep_lag1_1_1", "collect_1", "learn_1"] and answer["peak_mib"] > 50
