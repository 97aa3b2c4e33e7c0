from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest

from isaac_appo.commands.completion import script
from isaac_appo.commands.main import COMMANDS, main

BASH = """
compopt() { echo "option $*"; }
source "$1"
COMP_LINE="$2" COMP_POINT=${#2}
_isaac_appo
printf '%s\\n' "${COMPREPLY[@]}"
"""
ZSH = """
compadd() { while [[ "$1" != -- ]]; do shift; done; shift; local w; for w in "$@"; do
  [[ "$w" == "${${words[CURRENT]}#$cut}"* ]] && print -r -- "$w"; done }
compset() { cut='*='; words[CURRENT]="${words[CURRENT]#*=}"; }
compdef() { :; }
_files() { print files; }
source "$1"
words=("${(@s: :)2}") CURRENT=${#words}
_isaac_appo
"""


def complete(shell: str, line: str, folder: Path) -> List[str]:
    """What the shell offers for the last word of `line`."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    (folder / "script").write_text(script(shell))
    options = ["--norc", "-c"] if shell == "bash" else ["-f", "-c"]
    command = [shell, *options, BASH if shell == "bash" else ZSH, shell, str(folder / "script"), line]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


SHELLS = pytest.mark.parametrize("shell", ["bash", "zsh"])


@SHELLS
@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("isaac-appo to", ["topology"]),
        ("isaac-appo train num_e", ["num_envs="]),
        ("isaac-appo train schedule.l", ["schedule.lag=", "schedule.learner_threads="]),
        ("isaac-appo train num_envs=8 task=A", ["Ant"]),
        ("isaac-appo train task=", ["Ant", "Cartpole"]),
        ("isaac-appo blueprint schedule=l", ["lockstep"]),
        ("isaac-appo train report.console=p", ["plain"]),
        ("isaac-appo train eval.enabled=", ["True", "False"]),
        ("isaac-appo train --conf", ["--config-dir"]),
        ("isaac-appo list sch", ["schedules"]),
        ("isaac-appo completion z", ["zsh"]),
        ("isaac-appo train zzz", []),
        ("isaac-appo doctor --run-root=", []),
    ],
)
def test_words_are_completed(shell: str, line: str, words: List[str], tmp_path: Path) -> None:
    found = [word for word in complete(shell, line, tmp_path) if word and not word.startswith(("option ", "files"))]
    assert found == words


@SHELLS
def test_every_command_is_completed(shell: str, tmp_path: Path) -> None:
    assert set(complete(shell, "isaac-appo ", tmp_path)) == set(COMMANDS)


def test_bash_adds_no_space_after_a_key(tmp_path: Path) -> None:
    assert "option -o nospace" in complete("bash", "isaac-appo train num_e", tmp_path)
    assert "option -o nospace" not in complete("bash", "isaac-appo train task=A", tmp_path)


def test_the_script_is_printed_without_heavy_imports(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", "bash"]) == 0
    assert capsys.readouterr().out == script("bash")
    code = (
        "import sys; from isaac_appo.commands.main import main; main(['completion', 'zsh']); "
        "print([name for name in ('torch', 'hydra', 'warp', 'mujoco') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
