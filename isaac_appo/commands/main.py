"""The console entry: finds the command, and answers what a person can mend with plain text and an exit code."""

from __future__ import annotations

import importlib
import os
import select
import signal
import sys
from typing import Dict, List, Optional

from isaac_appo import __version__
from isaac_appo.errors import UserError

# name -> one line; the module of that name has `main(argv) -> int`. It is imported when called: torch takes seconds.
COMMANDS: Dict[str, str] = {
    "train": "train a policy: isaac-appo train task=Ant num_envs=1024",
    "play": "evaluate, film or watch a policy: isaac-appo play checkpoint=latest video=true",
    "demo": "the Ant that comes with the package walks: isaac-appo demo",
    "export": "ONNX, TorchScript and contract of a policy: isaac-appo export checkpoint=latest",
    "topology": "roles, queues and predicted lag of a design or a run",
    "bench": "measure this machine, this trainer and rl_games; --help lists its modes",
    "blueprint": "what a run builds: layers, devices, buffers, logging",
    "plot": "mean and spread over seeds of many runs, as a picture and a table",
    "list": "tasks, engines, schedules and other choices, one line each",
    "completion": "print a completion script for bash or zsh",
    "doctor": "what this machine can run, and why not",
}


def main(argv: Optional[List[str]] = None) -> int:
    """Run `isaac-appo COMMAND ...` and return its exit code; 2 means the command line or configuration is wrong."""
    try:
        try:
            return _answer(list(sys.argv[1:] if argv is None else argv))
        finally:
            print(end="", flush=True)  # not sys.stdout.flush(): there is no stdout where it was closed
    except BrokenPipeError:
        if not _nobody_reads():
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the interpreter would try once more
        return 128 + signal.SIGPIPE


def _nobody_reads() -> bool:
    """Whether the reader of our output has gone, as in `isaac-appo list | head`: nothing is left to tell."""
    poll = select.poll()
    poll.register(sys.stdout.fileno(), 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def _answer(words: List[str]) -> int:
    if not words or words[0] in ("-h", "--help", "help"):
        print(_usage())
        return 0
    if words[0] == "--version":
        print(__version__)
        return 0
    if words[0] not in COMMANDS:
        print(_unknown(words[0]), file=sys.stderr)
        return 2
    try:
        return int(importlib.import_module(f"isaac_appo.commands.{words[0]}").main(words[1:]))
    except UserError as error:
        print(f"isaac-appo {words[0]}: {error}", file=sys.stderr)
        return error.exit_code


def _usage() -> str:
    width = max(len(name) for name in COMMANDS) + 2
    lines = ["usage: isaac-appo COMMAND [KEY=VALUE ...]", "", "Commands:"]
    lines += [f"  {name:<{width}}{text}" for name, text in COMMANDS.items()]
    lines += ["", "isaac-appo COMMAND --help lists its keys and choices; isaac-appo --version prints the version."]
    return "\n".join(lines)


def _unknown(word: str) -> str:
    import difflib

    if "=" in word:
        return f"isaac-appo {word}: a command comes first. Write isaac-appo train {word}\n\n{_usage()}"
    match = difflib.get_close_matches(word, list(COMMANDS), n=1)
    hint = f" Did you mean {match[0]}?" if match else ""
    return f"isaac-appo {word}: no such command.{hint}\n\n{_usage()}"
