"""Every command that README.md and docs/ tell the reader to type is run, reduced; what cannot be is composed."""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Dict, Iterator, List, Tuple

import pytest

from isaac_appo.commands.bench import parser as bench_parser
from isaac_appo.commands.bench import with_default_problem
from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import COMMANDS, main
from tests.docs.pages import PAGES, ROOT, commands_of, files_of
from tests.helpers import can_film

pytestmark = pytest.mark.skipif(sys.version_info < (3, 9), reason="Python 3.8's lock has neither ONNX nor an encoder")
DOUBLES = ROOT / "tests" / "doubles"
NOT_RUN: Dict[str, str] = {
    r"sim=isaacgym\b": "needs Isaac Gym and its Python",
    r"task=isaacgymenvs:": "needs IsaacGymEnvs",
    r"^isaac-appo bench\b": "takes minutes, alone on the machine",
    r"\bdoctor\b": "asks the machine for many seconds; tests/commands runs it",
}
"""Commands that are composed and not run, with the reason."""
SMALL = {
    "num_envs": "8",
    "train.params.config.horizon_length": "8",
    "train.params.config.minibatch_size": "32",
    "train.params.config.mini_epochs": "1",
    "schedule.policy_threads": "1",
    "schedule.learner_threads": "1",
    "eval.num_envs": "2",
    "task.env.episodeLength": "20",
    "report.console": "off",
    "report.plot": "False",
    "report.tensorboard": "False",
}


def words_of(line: str) -> List[str]:
    """The words after `isaac-appo`, or an empty list for `make`."""
    words = shlex.split(line, comments=True)
    if words[0] == "docker":  # docker run ... IMAGE WORDS
        return words[next(i for i, word in enumerate(words) if word.startswith("isaac-appo:")) + 1 :]
    return {"isaac-appo": words[1:], "python": words[3:], "make": []}[words[0]]


def reduced(words: List[str]) -> List[str]:
    """The same command on a small problem; counts of updates keep their order."""
    if words[0] == "train" and "--help" not in words:
        if "-m" in words:
            return [*words, "sweep.jobs=0"]
        typed = dict(word.partition("=")[::2] for word in words if "=" in word)
        updates = max(2, int(typed.get("max_iterations", 0)) // 150)
        changed = {**SMALL, "max_iterations": str(updates)}
        if "eval.every" in typed:
            changed["eval.every"] = "1"
        return [w for w in words if w.partition("=")[0] not in changed] + [f"{k}={v}" for k, v in changed.items()]
    if words[0] in ("play", "demo"):
        dropped = ("viewer=", *(() if can_film() else ("video=",)))  # a viewer stays open until Ctrl-C
        return [w for w in words if not w.startswith(dropped)] + ["num_envs=2", "length=4", "task.env.episodeLength=20"]
    return words


def run(words: List[str]) -> str:
    """What the command prints; fails unless it ends well."""
    out = io.StringIO()
    with redirect_stdout(out):
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    assert code == 0, (words, out.getvalue())
    return out.getvalue()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Tuple[Path, Dict[str, str]]:
    """A folder in which README's five minutes were spent, and what each of its commands printed."""
    folder = tmp_path_factory.mktemp("five_minutes")
    for name, text in files_of(PAGES["docs/writing_a_task.md"].read_text(encoding="utf-8")).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    readme = PAGES["README.md"].read_text(encoding="utf-8")
    section = readme[readme.index("## Five minutes") : readme.index("## What a run says")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return folder, {line: run(reduced(words_of(line))) for line in commands_of(section) if words_of(line)}


@pytest.fixture
def there(place: Tuple[Path, Dict[str, str]], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(place[0])
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield
    sys.modules.pop("swingup", None)


def test_five_minutes_lead_from_the_demo_to_the_export(place: Tuple[Path, Dict[str, str]]) -> None:
    folder, said = place
    kinds = [words_of(line)[0] for line in said]
    assert kinds == ["demo", "train", "train", "train", "plot", "play", "play", "export"]
    sweep, plot, film = list(said.values())[3:6]
    run_dir = folder / "runs" / "Ant" / "default" / "s42"
    assert re.search(r"Resumed from .*: update 2,", (run_dir / "log.txt").read_text(encoding="utf-8"))
    assert sweep.count("isaac-appo train") == 6 and "Picture:" in plot and "trained: return" in film
    assert (run_dir / "export" / "Ant.onnx").is_file() and (not can_film() or list((run_dir / "videos").iterdir()))


LINES = sorted({line for page in PAGES.values() for line in commands_of(page.read_text(encoding="utf-8"))})


@pytest.mark.parametrize("line", [line for line in LINES if not line.startswith("make ")])
def test_command(line: str, there: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = words_of(line)
    if any(re.search(pattern, line) for pattern in NOT_RUN):
        monkeypatch.syspath_prepend(str(DOUBLES))
        if words[0] == "bench":
            words[1:] = with_default_problem(bench_parser().parse_known_args(words[1:])[1])
        assert words[0] in COMMANDS and compose(words[1:], words[0]).config.num_envs > 0
        return
    train = words[0] == "train" and not {"-m", "--help"} & set(words)
    run([*reduced(words), *([f"run_root={tmp_path}"] if train else [])])


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("make ")])
def test_make(line: str, there: None, tmp_path: Path) -> None:
    """Make is asked what it would do; a training among that is run."""
    words = shlex.split(line)
    plan = subprocess.run(
        ["make", "-n", "-C", str(ROOT), *words[1:]], capture_output=True, text=True, check=True
    ).stdout
    trainings = re.findall(r"-m isaac_appo (train .*)", plan)
    assert bool(trainings) == ("train" in words)
    for command in trainings:
        run([*reduced(shlex.split(command)), f"run_root={tmp_path}"])


def test_each_reason_not_to_run_is_used() -> None:
    assert [p for p in NOT_RUN if not any(re.search(p, line) for line in LINES)] == []
