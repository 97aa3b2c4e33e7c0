"""The ablation: paired ratios by hand, resumable runs, and one real pair of runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

from isaac_appo.bench import ablation
from isaac_appo.bench.ablation import SYNC, Setting, Suite, ablation_markdown, draw_ablation, paired_ratio, run_ablation

LAG1 = Setting("vtrace", "decoupled", 1)
SUITE = Suite("Cartpole", ["max_iterations=2"], 400.0, True, (1, 2, 3), [SYNC, LAG1])


def run(setting: Setting, seed: int, samples: int, reached: bool = True) -> Dict[str, Any]:
    return {
        "task": "Cartpole",
        **setting._asdict(),
        "c_bar": 3.0,
        "seed": seed,
        "samples": samples,
        "reached": reached,
        "seconds": 1.0,
    }


def test_ratios_are_paired_by_seed_and_geometric() -> None:
    runs = [run(SYNC, 1, 100), run(SYNC, 2, 200), run(LAG1, 1, 200), run(LAG1, 2, 100), run(LAG1, 3, 900)]
    ratio = paired_ratio(runs, "Cartpole", LAG1)  # 2 and 1/2; seed 3 has no partner
    assert ratio is not None and ratio.seeds == 2
    assert ratio.mean == pytest.approx(1.0) and ratio.low == pytest.approx(0.5) and ratio.high == pytest.approx(2.0)
    assert paired_ratio(runs, "Ant", LAG1) is None
    same = paired_ratio([run(SYNC, s, 100) for s in (1, 2)] + [run(LAG1, s, 120) for s in (1, 2)], "Cartpole", LAG1)
    assert same is not None and (same.low, same.high) == (pytest.approx(1.2), pytest.approx(1.2))


def test_a_stopped_command_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: List[Any] = []

    def fake(suite: Suite, setting: Setting, seed: int) -> Dict[str, Any]:
        ran.append((seed, setting))
        return run(setting, seed, 100 + setting.lag)

    monkeypatch.setattr(ablation, "run_one", fake)
    said: List[str] = []
    assert run_ablation([SUITE], tmp_path, -1.0, said.append) == [] and "again" in said[0]
    monkeypatch.setattr(ablation.time, "perf_counter", iter(range(100)).__next__)
    assert len(run_ablation([SUITE], tmp_path, 4.0)) == 4  # seeds 1 and 2, both settings
    with open(tmp_path / "runs.jsonl", "a") as file:
        file.write(json.dumps({**run(LAG1, 3, 100), "c_bar": 1.0}) + "\n")  # of an earlier version, with other caps
        file.write('{"task": "Cartp')  # killed while it wrote
    assert len(run_ablation([SUITE], tmp_path, 100.0)) == 6
    assert ran == [(seed, setting) for seed in (1, 2, 3) for setting in (SYNC, LAG1)]
    assert len(ablation.read_runs(tmp_path / "runs.jsonl")) == 7


def test_table_and_figure(tmp_path: Path) -> None:
    gae = LAG1._replace(advantage="gae")
    runs = [run(SYNC, 1, 100), run(LAG1, 1, 130, reached=False), run(gae, 1, 65)]
    text = ablation_markdown(runs, [SUITE._replace(settings=[SYNC, gae, LAG1])])
    assert "| 1 | gae | decoupled | 0.65 (0.65 to 0.65) | 1 | 0 |  |" in text
    assert "| 1 | vtrace | decoupled | 1.30 (1.30 to 1.30) | 1 | 1 | 2.00 (2.00 to 2.00) |" in text
    assert "Not measured." in ablation_markdown([], [SUITE])
    draw_ablation(runs, [SUITE], tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 5_000


def test_a_real_run_is_repeatable_and_says_that_it_did_not_reach_the_target() -> None:
    small = SUITE._replace(overrides=["max_iterations=2", "num_envs=16", "train.params.config.minibatch_size=64"])
    first, again = (ablation.run_one(small, LAG1, 1) for _ in range(2))
    assert not first["reached"] and first["samples"] == 2 * 16 * 16
    assert first["curve"] == again["curve"]
