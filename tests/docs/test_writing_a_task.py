"""The page on tasks is followed to the letter: its files are written to a folder and its commands are run there."""

from __future__ import annotations

import csv
import re
import sys
from pathlib import Path
from typing import Iterator

import pytest

from isaac_appo.commands.main import main
from tests.docs.pages import PAGES, files_of

FILES = files_of(PAGES["docs/writing_a_task.md"].read_text(encoding="utf-8"))
SHORT = ["num_envs=16", "max_iterations=2", "eval.num_envs=2", "report.plot=False", "report.tensorboard=False"]


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with the files of the page as the working folder."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    sys.modules.pop("swingup", None)


def test_the_page_is_a_whole_task_of_about_60_lines() -> None:
    assert sorted(FILES) == [
        "mine/swingup.py",
        "mine/swingup.xml",
        "mine/task/SwingUp.yaml",
        "mine/train/SwingUpPPO.yaml",
    ]
    assert 50 <= sum(len(text.splitlines()) for text in FILES.values()) <= 75


def test_it_trains_and_is_played_as_written(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "--config-dir", "mine", "task=SwingUp", *SHORT]) == 0
    run = there / "runs" / "SwingUp" / "default" / "s42"
    with open(run / "metrics.csv") as file:
        assert [row["info/epochs"] for row in csv.DictReader(file)] == ["1", "2"]
    assert main(["play", "--config-dir", "mine", "task=SwingUp", "agent=zero", "num_envs=16"]) == 0
    mean = float(re.findall(r"^zero: return (\S+)", capsys.readouterr().out, re.M)[0])
    assert -249 <= mean < 0  # it hangs or swings, and -cos(angle) is what a step pays
    sys.modules.pop("swingup")
    sys.path.remove(str(there / "mine"))  # a new process knows the run, and has to be told where its code is
    assert main(["play", "--config-dir", "mine", "checkpoint=latest", "num_envs=4"]) == 0
    assert "Task: SwingUp" in capsys.readouterr().out


def test_what_is_wrong_with_it_is_said(there: Path, capsys: pytest.CaptureFixture[str]) -> None:
    yaml, task = there / "mine/task/SwingUp.yaml", there / "mine/swingup.py"

    def refusal(*more: str) -> str:
        sys.modules.pop("swingup", None)
        sys.modules.pop("swingup2", None)
        assert main(["train", "--config-dir", "mine", "task=SwingUp", "experiment=x", *SHORT, *more]) == 2
        return capsys.readouterr().err

    assert "task.module='nowhere' cannot be imported: No module named 'nowhere'. Give the folder" in refusal(
        "task.module=nowhere"
    )
    assert "task='SwingUp' does not exist" in refusal("task.module=")
    assert "task.env.maxTorqe=1 is no setting of SwingUp. Did you mean 'maxTorque'" in refusal("+task.env.maxTorqe=1")
    text = task.read_text()
    (there / "mine/swingup2.py").write_text(text.replace("class SwingUp(Task)", "class SwingUp"))
    assert "swingup2.py) has no class 'SwingUp' derived from" in refusal("task.module=swingup2")
    (there / "mine/swingup2.py").write_text(
        text.replace("    num_obs, num_actions = 3, 1\n", "").replace("def observe(", "def look(")
    )
    assert "class SwingUp lacks num_obs, num_actions, observe" in refusal("task.module=swingup2")
    yaml.unlink()
    assert "must be one of Ant, Cartpole" in refusal()
