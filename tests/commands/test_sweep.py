"""``isaac-appo train -m`` as a user runs it. Only the first test trains: two processes."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any, List

import pytest
import yaml

import isaac_appo.cfg
from isaac_appo.commands import sweep
from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import main
from isaac_appo.sweep import launch

TINY = ["task=Cartpole", "num_envs=8", "max_iterations=2", "eval.enabled=False", "experiment=mine"]


def read(path: Path) -> List[Any]:
    with open(path) as file:
        return list(csv.DictReader(file))


def test_every_run_is_a_process_and_a_failure_is_an_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, f"run_root={tmp_path}", "train.params.config.horizon_length=64", "resume=never"]
    used = tmp_path / "Cartpole" / "mine" / "s2"
    used.mkdir(parents=True)
    (used / "run.json").write_text("{}")  # resume=never refuses a used folder
    assert main(["train", "-m", *words, "seed=1,2", "sweep.jobs=1"]) == 1
    folder = tmp_path / "sweeps" / "mine"
    first, second = read(folder / "sweep_summary.csv")
    assert (first["overrides"], first["exit_code"]) == ("seed=1", "0")
    assert (second["overrides"], second["exit_code"], second["final_reward"]) == ("seed=2", "2", "")
    assert first["run_dir"] == str(tmp_path / "Cartpole" / "mine" / "s1")
    assert float(first["final_reward"]) > 0 and (Path(first["run_dir"]) / "metrics.csv").is_file()
    assert "wandb_group: mine" in (Path(first["run_dir"]) / "config.yaml").read_text()
    assert (folder / "sweep.png").is_file() and "| Cartpole | mine | 1 |" in (folder / "sweep.md").read_text()
    shown = capsys.readouterr()
    assert "already holds a run" in shown.out and "1 of 2 runs failed" in shown.err
    assert "final return" in (folder / "jobs" / "001.log").read_text() + shown.out


@pytest.fixture()
def instead_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that leaves a metrics.csv where the run's words say, and fails for seed 3."""
    code = (
        "import sys, pathlib; w = dict(x.split('=', 1) for x in sys.argv[1:]); "
        "names = [w[k].strip(chr(34)) for k in ('run_root', 'task', 'experiment')]; "
        "p = pathlib.Path(*names, 's' + w.get('seed', '42')); "
        "p.mkdir(parents=True); lag = float(w.get('schedule.lag', 1)); "
        "(p / 'metrics.csv').write_text(f'update,env_steps,elapsed_s,rewards/step\\n1,8,1,{lag}\\n'); "
        "sys.exit(3 if w.get('seed') == '3' else 0)"
    )
    original = launch.LocalLauncher
    fake = [sys.executable, "-c", code]
    monkeypatch.setattr(sweep, "LocalLauncher", lambda slots, gpus: original(slots, gpus, fake))


@pytest.mark.usefixtures("instead_of_training")
def test_a_grid_has_a_folder_for_each_run_and_a_table_of_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, f"run_root={tmp_path}", "schedule.lag=0,2", "seed=range(1,4)", "sweep.jobs=3"]
    assert main(["train", "--multirun", *words]) == 1
    rows = read(tmp_path / "sweeps" / "mine" / "sweep_summary.csv")
    assert [row["exit_code"] for row in rows] == ["0", "0", "3"] * 2
    assert len({row["run_dir"] for row in rows}) == 6
    out = capsys.readouterr().out
    assert "6 runs, 3 at a time" in out
    assert out.splitlines()[-2:] == [
        "| Cartpole | schedule.lag=2 | 2 | 2.0 ± 0.0 | 8 | 1.0 |",
        "| Cartpole | schedule.lag=0 | 2 | 0.0 ± 0.0 | 8 | 1.0 |",
    ]


@pytest.mark.usefixtures("instead_of_training")
def test_optuna_searches_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("optuna")
    words = [*TINY, f"run_root={tmp_path}", "schedule.lag=int(interval(0,8))", "hydra/sweeper=optuna", "sweep.jobs=1"]
    assert main(["train", "-m", *words, "hydra.sweeper.n_trials=2"]) == 0
    assert main(["train", "-m", *words, "hydra.sweeper.n_trials=3"]) == 0
    rows = read(tmp_path / "sweeps" / "mine" / "sweep_summary.csv")
    assert [row["job"] for row in rows] == ["1", "2", "3"]
    assert all(row["overrides"] == f"schedule.lag={float(row['final_reward']):g}" for row in rows)
    assert (tmp_path / "Cartpole" / "mine_trial-2" / "s42").is_dir()


def test_no_jobs_prints_the_commands_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["task=glob(C*)", "seed=1,2", f"run_root={tmp_path}", "wandb_group=ours", "sweep.jobs=0"]
    assert main(["train", "-m", *words]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("seed=")[1].split()[0] for line in lines] == ["1", "2"]
    assert all(line.startswith("isaac-appo train ") and "wandb_group=ours" in line for line in lines)
    assert all("experiment=sweep-" in line and line.count("wandb_group") == 1 for line in lines)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["num_envs=8"], "-m: no key has several values. Write for example seed=1,2,3"),
        (["train.params.config.gamma=interval(0.9,1)"], "train.params.config.gamma: an interval is searched"),
        (["seed=1,2", "hydra/sweeper=optuna"], "seed: a search over seeds finds the luckiest one"),
        (["schedule.lag=0,1", "hydra/sweeper=optuna", "sweep.jobs=0"], "sweep.jobs = 0: a search knows"),
        (["task=Ant,Cartpol"], "with task=Cartpol: task = Cartpol: must be one of Ant, Cartpole. Did you mean"),
        (["schedule=sync,lockstep", "schedule.lag=1", "seed=1,2"], "with schedule=sync: schedule.lag = 1: must be 0"),
        (["seed=1,2", "headless"], "headless: needs a value"),
        (["seed=1,2", "hydra/launcher=submitit_local", "hydra.launcher.foo=1"], "hydra/launcher=submitit_local:"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_runs(
    words: List[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "-m", *words, f"run_root={tmp_path}"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "isaac-appo train: 1 error in the configuration:" and lines[1].strip().startswith(text)
    assert not list(tmp_path.glob("*/*/*/metrics.csv"))


def test_help_of_train_is_not_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["train", "-m", "--help"])
    assert stop.value.code == 0 and "isaac-appo train -m" in capsys.readouterr().out


def test_the_shipped_wandb_sweep_composes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert isaac_appo.cfg.__file__ is not None
    tree = yaml.safe_load((Path(isaac_appo.cfg.__file__).parent / "sweep" / "wandb.yaml").read_text())
    assert tree["command"][:2] == ["isaac-appo", "train"] and tree["command"][-1] == "${args_no_hyphens}"
    picked = [f"{key}={p['values'][0] if 'values' in p else p['min']}" for key, p in tree["parameters"].items()]
    monkeypatch.setenv("WANDB_RUN_ID", "a1b2c3")
    fixed = [word for word in tree["command"][2:-1] if not word.startswith("wandb_activate")]
    for words in (picked, [f"--{word}" for word in picked]):  # as ${args_no_hyphens} and as ${args}
        config = compose([*fixed, *words]).config
        assert config.experiment == "wandb-a1b2c3" and config.ppo.learning_rate == 1e-4 and config.schedule.lag == 0
