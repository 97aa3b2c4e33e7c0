"""The GPU bench on the fake layer, at sizes that measure nothing: that it runs, writes as it goes, and degrades."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, Set

import pytest
import torch

from isaac_appo.bench import gpu
from isaac_appo.bench.busy_env import BusyEnv
from isaac_appo.bench.gpu import GpuBench, gpu_markdown
from isaac_appo.commands.main import main
from isaac_appo.learn.learner import Learner
from isaac_appo.rollout.collector import Collector
from tests.schedule.fake_device import FakeDevice

WORDS = ["sim=mujoco", "train.params.config.mini_epochs=1", "train.params.network.mlp.units=[8]"]


def bench(folder: Path, **more: Any) -> GpuBench:
    return GpuBench(folder, "dry", "cpu", WORDS, lambda: FakeDevice(1), lambda text: None, **more)


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Dict[str, Any]:
    folder = tmp_path_factory.mktemp("gpu")
    return {**bench(folder).run(), "folder": folder}


def test_every_stage_runs_and_leaves_its_file(report: Dict[str, Any]) -> None:
    names = ["launches", "streams", "Ant_16", "rl_games", "variants", "synthetic", "Cartpole_16"]
    assert list(report["stages"]) == names and report["missing"] == {}
    files = sorted(path.name for path in report["folder"].iterdir())
    assert files == [*(f"{i:02d}_{name}.json" for i, name in enumerate(names)), "report.json", "report.md"]
    saved = json.loads((report["folder"] / "report.json").read_text())
    assert saved["stages"]["Ant_16"] == json.loads((report["folder"] / "02_Ant_16.json").read_text())["rows"]
    assert "dry run: numbers mean nothing" in (report["folder"] / "report.md").read_text()


def test_the_ratios_follow_from_the_times(report: Dict[str, Any]) -> None:
    rows = {row["what"]: row for row in report["stages"]["Ant_16"]}
    collect, learn, both = (rows[name]["ms"] for name in ("collect", "learn", "lockstep"))
    found = rows["overlap"]
    assert found["S"] == pytest.approx((collect + learn) / both)
    assert found["H"] == pytest.approx((collect + learn - both) / min(collect, learn))
    assert found["R"] == pytest.approx(rows["simulation"]["ms"] / both)
    assert found["bound_ms"] == pytest.approx(max(collect, learn)) and found["use"] == [None, None]
    assert rows["sync"]["fps"] == pytest.approx(16 * 16 / rows["sync"]["ms"] * 1e3)
    assert "captured" in rows["lockstep"]["state"]


def test_variants_are_measured_there_and_back(report: Dict[str, Any]) -> None:
    rows = report["stages"]["variants"]
    names = [row["what"] for row in rows]
    assert len(names) == 12 and names == names[::-1] and "half batches" in names
    assert "graphs off" in {row["what"]: row["state"] for row in rows}["graphs off"]


@pytest.mark.parametrize("phase", ["collect", "learn", "both"])
def test_a_phase_alone_leaves_out_the_work_of_the_other(
    phase: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From slab 6 on, and the accounts are those of a whole run."""
    seen: Dict[str, Set[int]] = {}
    for owner, name in ((Collector, "act"), (Collector, "record"), (Collector, "bootstrap"), (Learner, "minibatch")):
        monkeypatch.setattr(owner, name, noted(seen, name, getattr(owner, name)))
    b = bench(tmp_path)
    b.lab.block(b.words_of("Cartpole", 16, "schedule.graphs=False"), 8, phase=phase)
    everything = set(range(10))
    early = set(range(6))
    for name, indices in seen.items():
        kept = phase == "both" or (phase == "learn") == (name == "minibatch")
        assert indices & everything == (everything if kept else early), name
    assert b.lab.last.ledger.lag_histogram.keys() == {0, 1} and b.lab.last.ledger.totals()["trained"] >= 9 * 256 * 0.9


def noted(seen: Dict[str, Set[int]], name: str, plain: Any) -> Any:
    def call(self: Any, index: int, *args: int) -> None:
        seen.setdefault(name, set()).add(index)
        plain(self, index, *args)

    return call


WITHOUT_WARP = """
import sys
from pathlib import Path

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("warp", "mujoco", "mujoco_warp"):
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Hidden())
from isaac_appo.bench import gpu
plain = gpu.find_spec
gpu.find_spec = lambda name: None if "warp" in name else plain(name)
bench = gpu.GpuBench(Path(sys.argv[1]), "dry", "cpu", sys.argv[2:], lambda: FakeDevice(1))
from tests.schedule.fake_device import FakeDevice  # after the bench: it brings in Warp
report = bench.run()
assert list(report["stages"]) == ["launches", "streams", "synthetic"], report
assert set(report["missing"].values()) == {"not measured: no MuJoCo Warp"}, report
assert report["machine"]["kernels"] == "torch twins: Warp is not installed"
assert "captured" in report["stages"]["synthetic"][0]["state"] and report["stages"]["synthetic"][0]["fps"] > 0
"""


def test_without_warp_it_measures_what_is_left(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    words = [sys.executable, "-c", WITHOUT_WARP, str(tmp_path), *WORDS]
    done = subprocess.run(words, env=env, stderr=subprocess.PIPE, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr


def test_a_budget_is_kept_and_a_stage_that_fails_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bench(tmp_path)
    b.kind, clock = "full", iter(range(0, 10**6, 10))
    b._compile = lambda now: 0.0  # type: ignore[method-assign]
    monkeypatch.setattr(gpu, "streams", lambda *args: [][0])
    report = b.run(55.0, now=lambda: float(next(clock)))
    assert list(report["stages"]) == ["launches"]
    assert report["missing"]["streams"] == "not measured: IndexError: list index out of range"
    assert report["missing"]["Ant_16"].endswith("of the budget were left")
    assert "- streams: not measured" in gpu_markdown(report)


def test_without_a_gpu_the_command_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert main(["bench", "--gpu", "--quick"]) == 2
    assert "PyTorch finds no CUDA GPU" in capsys.readouterr().err


def test_the_synthetic_simulator_keeps_the_contract() -> None:
    env = BusyEnv(64, torch.device("cpu"), 8, 2)
    env.reset()
    lengths, dead = [], 0
    age = torch.zeros(64, dtype=torch.int64)
    for t in range(120):
        before = env.terminated | env.truncated
        obs, reward, terminated, truncated = env.step(torch.full((64, 8), (-1.0) ** (t // 20)))
        assert not (terminated & truncated).any() and not (before & (terminated | truncated)).any()
        assert bool((reward[before] == 0).all()) and bool(torch.isfinite(obs).all())
        dead += int(before.sum())
        age = torch.where(before, torch.zeros_like(age), age + 1)
        lengths += age[terminated | truncated].tolist()
    assert dead > 64 and max(lengths) == 49 and min(lengths) < 49
    other = BusyEnv(64, torch.device("cpu"), 8, 2)
    other.load_state_dict(env.state_dict())
    actions = torch.full((64, 8), 0.1)
    for _ in range(60):
        expected, got = env.step(actions), other.step(actions)
        assert all(torch.equal(a, b) for a, b in zip(expected, got))
