"""``isaac-appo topology`` and ``isaac-appo blueprint`` as they are typed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

import isaac_appo.topology
from isaac_appo.commands.main import main
from isaac_appo.topology.specification import check

EXAMPLE = Path(isaac_appo.topology.__file__).with_name("example.json")
HEAVY = ("torch", "warp", "mujoco", "isaacgym", "rl_games", "matplotlib")


@pytest.mark.parametrize(
    "argv",
    [
        ["topology", "--rollout-workers", "3"],
        ["topology", "task=Ant", "schedule=free"],
        ["topology", "--learners", "0"],
        ["blueprint", "task=ant"],
        ["blueprint", "--validate", str(EXAMPLE)],
    ],
)
def test_torch_is_imported_only_where_tensors_are_laid_out(argv: List[str]) -> None:
    code = (
        f"import sys; from isaac_appo.commands.main import main; main({argv!r}); "
        f"print([name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_flags_alone_compose_nothing() -> None:
    code = "import sys; from isaac_appo.commands.main import main; main(['topology']); print('hydra' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_the_topology_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "task=Ant", "num_envs=100", "schedule.lag=2", "--trajectory-length", "16"]) == 0
    out = capsys.readouterr().out
    assert "Topology of Ant, 100 envs, schedule=lockstep" in out
    assert "produced samples per rollout iteration: 1,600 (1 worker x 100 envs x 16 steps)" in out
    assert "from update 2 on" in out and "exactly 2 updates" in out and "mean 2" in out


def test_the_topology_of_a_free_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["num_envs=32", "schedule=free", "schedule.num_workers=3", "schedule.max_policy_lag=2"]
    assert main(["topology", "task=Cartpole", *words, "schedule.max_lead_steps=64"]) == 0
    out = capsys.readouterr().out
    assert "3 x rollout_worker" in out and "3 x policy_worker" in out
    assert "32 envs in 3 shards of 11 or one less" in out
    assert "0..2 updates" in out


def test_a_run_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "task=Ant", "schedule=free", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["run"]["lag"]["high"] == 1 and found["run"]["lag"]["mean"] is None
    assert found["rollout_workers"] == found["policy_workers"] == 1
    assert found["learner_batch_size"] == found["produced_samples"] == 4096 * 16


def test_flags_that_contradict_the_run_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--trajectory-length", "3", "--rollout-workers", "2", "--learner-batch-size", "8", "--learners", "1"]
    assert main(["topology", "task=Ant", *flags]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "3 errors" in shown.err
    assert "--trajectory-length = 3: the run's configuration makes it 16. " in shown.err
    assert "Write train.params.config.horizon_length=3" in shown.err
    assert "--rollout-workers = 2: the run's configuration makes it 1. Write schedule.num_workers=2" in shown.err


def test_errors_of_the_run_s_configuration_are_those_of_train(capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("topology", "blueprint"):
        assert main([command, "task=ant"]) == 2
        assert f"isaac-appo {command}: 1 error" in capsys.readouterr().err


@pytest.mark.parametrize("value", ["0", "-1", "1.5", "two", "nan", ""])
def test_a_number_is_a_whole_number(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", f"--envs-per-worker={value}"]) == 2
    assert "must be a whole number of at least 1. Use --envs-per-worker 4" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["topology", "blueprint"])
def test_an_unknown_option_is_an_error(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main([command, "--rollout-worker", "2"])
    assert stop.value.code == 2
    assert "--rollout-worker" in capsys.readouterr().err


def test_a_rejected_design_as_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("rollout_workers: [compute gradients]\nlearner: [hum]\n")
    assert main(["topology", "--json", "--responsibilities", str(path)]) == 2
    shown = capsys.readouterr()
    found = json.loads(shown.out)
    assert found["accepted"] is False
    [violation] = found["violations"]
    assert violation["component"] == "rollout_workers" and violation["responsibility"] == "compute gradients"
    assert found["unchecked"] == ["learner: hum"]
    assert "rejected, 1 violation" in shown.err


def test_unchecked_responsibilities_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "map.json"
    path.write_text('{"learner": ["hum"]}')
    assert main(["topology", "--responsibilities", str(path)]) == 0
    assert "unchecked, no rule speaks about it: learner: hum" in capsys.readouterr().out


def test_a_responsibilities_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topology", "--responsibilities", "/nowhere.yaml"]) == 2
    assert "--responsibilities /nowhere.yaml: cannot be read" in capsys.readouterr().err


def test_a_blueprint_is_printed_drawn_and_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drawn = tmp_path / "run.svg"
    assert main(["blueprint", "task=Cartpole", "num_envs=8", "--svg", str(drawn)]) == 0
    out = capsys.readouterr().out
    assert "ROLLOUT WORKER LAYER" in out and "Process topology" in out
    assert drawn.read_text().startswith("<svg ")
    assert main(["blueprint", "task=Cartpole", "num_envs=8", "--json"]) == 0
    spec = json.loads(capsys.readouterr().out)
    assert check(spec) == [] and spec["rollout_worker_layer"]["envs"] == 8
    (tmp_path / "mine.json").write_text(json.dumps(spec))
    assert main(["blueprint", "--validate", str(tmp_path / "mine.json")]) == 0
    assert "valid" in capsys.readouterr().out


def test_a_console_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")
    command = [sys.executable, "-m", "isaac_appo", "blueprint", "task=Cartpole"]
    done = subprocess.run(command, capture_output=True, check=True)
    assert done.stdout.isascii() and b"+------" in done.stdout


def test_a_refused_specification_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spec = json.loads(EXAMPLE.read_text())
    del spec["learner_optimizer_layer"]
    spec["experience_buffer_storage_layer"]["buffer_class"] = "ReplayBuffer"
    path = tmp_path / "bad.yaml"
    path.write_text(json.dumps(spec))
    assert main(["blueprint", "--validate", str(path)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "is refused, 2 faults:" in shown.err
    assert "learner_optimizer_layer = (missing): this layer is required" in shown.err
    assert "buffer_class = ReplayBuffer: an on-policy run trains on fresh data only" in shown.err


def test_validate_takes_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blueprint", "--validate", str(EXAMPLE), "task=Ant", "--json"]) == 2
    assert "--validate takes a file and nothing else, not task=Ant --json" in capsys.readouterr().err


def test_a_picture_that_cannot_be_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["blueprint", "task=Cartpole", "--svg", "/nowhere/run.svg"]) == 2
    assert "--svg /nowhere/run.svg: cannot be written" in capsys.readouterr().err
