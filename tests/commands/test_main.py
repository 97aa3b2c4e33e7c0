from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from isaac_appo import __version__
from isaac_appo.checkpoint import CheckpointError
from isaac_appo.commands import main as entry
from isaac_appo.errors import UserError
from isaac_appo.export.files import ExportError
from isaac_appo.schedule.pipeline import TrainingDiverged

HEAVY = ("torch", "warp", "mujoco", "isaacgym", "rl_games", "matplotlib", "tensorboard")


@pytest.mark.parametrize("module", ["isaac_appo", "isaac_appo.config", "isaac_appo.commands.compose"])
def test_importing_the_command_line_imports_nothing_heavy(module: str) -> None:
    code = f"import sys, {module}, isaac_appo.commands.main; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_wrong_command_line_is_answered_before_torch_is_imported() -> None:
    code = (
        "import sys; from isaac_appo.commands.main import main; code = main(['train', 'task=ant']); "
        f"print(code, [name for name in {HEAVY} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "2 []"
    assert done.stderr == (
        "isaac-appo train: 1 error in the configuration:\n"
        "  task = ant: must be one of Ant, Cartpole. Did you mean task=Ant?\n"
    )


@pytest.mark.parametrize("argv", [[], ["--help"], ["-h"], ["help"]])
def test_help_lists_every_command(argv: list, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(argv) == 0
    out = capsys.readouterr().out
    for name, text in entry.COMMANDS.items():
        assert any(line.split() == [name, *text.split()] for line in out.splitlines())


def test_help_of_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        entry.main(["train", "--help"])
    assert stop.value.code == 0
    assert capsys.readouterr().out.startswith("usage: isaac-appo train [KEY=VALUE ...]")


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main(["--version"]) == 0
    assert capsys.readouterr().out == f"{__version__}\n"


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("trian", "isaac-appo trian: no such command. Did you mean train?"),
        ("zzz", "isaac-appo zzz: no such command."),
        ("task=Ant", "isaac-appo task=Ant: a command comes first. Write isaac-appo train task=Ant"),
    ],
)
def test_an_unknown_command_lists_what_there_is(word: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert entry.main([word]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.splitlines()[0] == text
    assert "train" in shown.err and "train a policy" in shown.err


def test_a_command_gets_its_words_and_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    module = types.SimpleNamespace(main=lambda argv: seen.append(argv) or 7)
    monkeypatch.setitem(entry.COMMANDS, "echo", "say it")
    monkeypatch.setitem(sys.modules, "isaac_appo.commands.echo", module)
    assert entry.main(["echo", "a=1", "b=2"]) == 7
    assert seen == [["a=1", "b=2"]]


def test_an_error_of_the_program_itself_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(argv: list) -> int:
        raise RuntimeError("a bug")

    monkeypatch.setitem(entry.COMMANDS, "echo", "say it")
    monkeypatch.setitem(sys.modules, "isaac_appo.commands.echo", types.SimpleNamespace(main=broken))
    with pytest.raises(RuntimeError, match="a bug"):
        entry.main(["echo"])


@pytest.mark.parametrize("code", [1, 2])
def test_what_a_person_can_mend_is_a_text_and_its_exit_code(
    code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(argv: list) -> int:
        raise type("Mine", (UserError,), {"exit_code": code})("Type something else")

    monkeypatch.setitem(entry.COMMANDS, "echo", "say it")
    monkeypatch.setitem(sys.modules, "isaac_appo.commands.echo", types.SimpleNamespace(main=refuse))
    assert entry.main(["echo"]) == code
    assert capsys.readouterr().err == "isaac-appo echo: Type something else\n"


def test_losing_a_run_or_a_copy_is_another_exit_code_than_a_wrong_word() -> None:
    assert [TrainingDiverged.exit_code, ExportError.exit_code, CheckpointError.exit_code] == [1, 1, 2]


@pytest.mark.parametrize("words", ["list", "--help", "play --help", "train --cfg job"])
@pytest.mark.parametrize("unbuffered", ["1", ""])
def test_a_reader_who_has_seen_enough_ends_a_command_quietly(words: str, unbuffered: str) -> None:
    read, write = os.pipe()
    os.close(read)
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    argv = [sys.executable, "-m", "isaac_appo", *words.split()]
    done = subprocess.run(argv, stdout=write, stderr=subprocess.PIPE, env=env, check=False)
    os.close(write)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_command_needs_no_stdout() -> None:
    command = f"'{sys.executable}' -m isaac_appo list >&-"
    done = subprocess.run(["bash", "-c", command], stderr=subprocess.PIPE, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_another_broken_pipe_is_not_taken_for_the_readers() -> None:
    code = "import sys, types; from isaac_appo.commands import main as entry"
    code += "; sys.modules['isaac_appo.commands.list'] = types.SimpleNamespace(main=lambda argv: open_pipe())"
    code += "\ndef open_pipe():\n    raise BrokenPipeError('its own')\nentry.main(['list'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "BrokenPipeError: its own" in done.stderr
