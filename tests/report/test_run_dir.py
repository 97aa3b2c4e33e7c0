from __future__ import annotations

import json
import platform
import subprocess
import sys
from pathlib import Path
from typing import Iterator

import pytest

from isaac_appo.report.run_dir import RunDir, RunDirBusy, RunDirError

OTHER_PROCESS = """
import sys
from isaac_appo.report.run_dir import RunDir
RunDir.create(sys.argv[1], "Ant", "", 1)
"""


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Iterator[RunDir]:
    run = RunDir.create(tmp_path, "Ant", "", 1)
    yield run
    run.close("done", 0)


def reopened(run: RunDir) -> RunDir:
    run.close("done", 0)
    return RunDir.create(run.root, "Ant", "", 1)


def other_process(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", OTHER_PROCESS, str(root)], capture_output=True, text=True, timeout=30)


def test_path_is_deterministic_and_prepare_makes_the_layout(run: RunDir, tmp_path: Path) -> None:
    run.prepare("auto")
    run.write_config("seed: 1\n", ["task=Ant", "seed=1"])
    assert run.path == tmp_path / "Ant" / "default" / "s1"
    present = {path.name for path in run.path.iterdir()}
    assert present == {
        ".lock", "checkpoints", "tb", "export", "nan_dump", "run.json", "config.yaml", "overrides.txt",
    }  # fmt: skip
    assert run.config_yaml.read_text() == "seed: 1\n" and run.overrides_txt.read_text() == "task=Ant\nseed=1\n"
    assert (tmp_path / "latest").resolve() == run.path
    with_name = RunDir.create(tmp_path, "Ant", "wide", 7)
    assert with_name.path == tmp_path / "Ant" / "wide" / "s7"
    with_name.prepare("auto")
    assert (tmp_path / "latest").resolve() == with_name.path
    with_name.close("done", 0)


@pytest.mark.parametrize("name", ["a b", "../x", "..", "a=b", "x[1]"])
def test_names_that_make_no_folder_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RunDirError, match="only letters, digits"):
        RunDir.create(tmp_path, "Ant", name, 1)


def test_a_second_process_is_refused_and_told_who_holds_it(run: RunDir, tmp_path: Path) -> None:
    refused = other_process(tmp_path)
    assert refused.returncode == 1
    assert "RunDirBusy" in refused.stderr and "experiment=" in refused.stderr
    owner = (run.path / ".lock").read_text().split()[0]
    assert f"in use by process {owner} on" in refused.stderr
    with pytest.raises(RunDirBusy):
        RunDir.create(tmp_path, "Ant", "", 1)
    run.close("done", 0)
    assert other_process(tmp_path).returncode == 0


def test_run_json_tells_who_what_when_and_how_it_ended(run: RunDir) -> None:
    run.prepare("auto")
    started = json.loads(run.run_json.read_text())
    assert (started["task"], started["experiment"], started["seed"]) == ("Ant", "default", 1)
    assert started["versions"]["python"] == platform.python_version()
    assert {"torch", "warp-lang", "mujoco"} < set(started["versions"])
    assert {"git_sha", "host", "pid", "start"} < set(started)
    assert (started["status"], started["exit_code"], started["end"]) == ("running", None, None)
    run.write_run_json(wandb_id="x")
    run.close("stopped", 143)
    run.close("done", 0)
    ended = json.loads(run.run_json.read_text())
    assert (ended["status"], ended["exit_code"], ended["wandb_id"]) == ("stopped", 143, "x")
    assert ended["end"] is not None and ended["first_start"] == started["start"]


def test_never_refuses_a_used_directory_and_touches_nothing(run: RunDir) -> None:
    run.prepare("never")
    run = reopened(run)
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    with pytest.raises(RunDirError, match=r"already holds a run.*experiment=NAME.*resume=auto"):
        run.prepare("never")
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    run.prepare("auto")
    run.close("done", 0)


def test_a_checkpoint_of_another_run_does_not_overwrite_a_used_directory(run: RunDir, tmp_path: Path) -> None:
    run.prepare(str(tmp_path / "elsewhere/ckpt_000000001.pth"))  # unused yet: fine
    run = reopened(run)
    with pytest.raises(RunDirError, match="already holds a run"):
        run.prepare(str(tmp_path / "elsewhere/ckpt_000000001.pth"))
    run.prepare(str(run.checkpoints / "ckpt_000000001.pth"))
    run.prepare(str(tmp_path / "latest"))
    run.close("done", 0)


def test_a_folder_called_latest_is_left_alone(run: RunDir, tmp_path: Path) -> None:
    (tmp_path / "latest").mkdir()
    with pytest.warns(RuntimeWarning, match=r"latest was not updated"):
        run.prepare("auto")
    assert (tmp_path / "latest").is_dir() and not (tmp_path / "latest").is_symlink()


def test_damaged_run_json_is_an_error(run: RunDir) -> None:
    run.run_json.write_text("{")
    with pytest.raises(RunDirError, match=r"run.json is damaged"):
        run.write_run_json(a=1)
    run.run_json.unlink()


def test_heartbeat_is_rate_limited(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    seen = []
    for now, update in ((1000.0, 1), (1000.9, 2), (1001.0, 3), (1001.5, 4)):  # noqa: B007 (read by the clock)
        run.heartbeat(update, update * 10)
        seen.append(json.loads(run.heartbeat_json.read_text())["update"])
    assert seen == [1, 1, 3, 3]
    assert json.loads(run.heartbeat_json.read_text())["env_steps"] == 30


def test_log_is_appended_with_a_time(run: RunDir) -> None:
    run.append_log("one")
    run.append_log("two")
    lines = run.log_txt.read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == ["one", "two"] and lines[0][4] == "-"
