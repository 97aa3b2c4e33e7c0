"""Ask another Python process, so that a crash of what it imports is a sentence here and not the end of this process."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from typing import Any, Dict, NamedTuple

_MARK = "isaac-appo-answer:"
_ISAACGYM = """
import isaacgym
from isaacgym import gymapi
gymapi.acquire_gym()
answer = {"double": bool(getattr(isaacgym, "__is_double__", False)), "file": isaacgym.__file__}
"""
_TORCH = """
import torch
from isaac_appo.sim.registry import ENGINES
answer = {"version": torch.__version__, "cuda": torch.version.cuda, "devices": [], "archs": []}
answer["engines"] = {name: entry.text for name, entry in ENGINES.items()}
if torch.cuda.is_available():
    answer["archs"] = torch.cuda.get_arch_list()
    for i in range(torch.cuda.device_count()):
        p = torch.cuda.get_device_properties(i)
        torch.zeros(1, device=f"cuda:{i}").add_(1).cpu()
        answer["devices"].append({"name": p.name, "sm": 10 * p.major + p.minor, "gib": round(p.total_memory / 2**30)})
"""
_WARP = """
from isaac_appo.kernels import wp
answer = {"version": wp.__version__, "devices": [str(d) for d in wp.get_devices()]}
"""
_EMBEDDED = """
import mujoco, torch
from isaac_appo.env.task_env import make_env
import isaac_appo.policy.actor_critic
env = make_env("Cartpole", {}, num_envs=2)
env.reset()
obs, reward, terminated, truncated = env.step(torch.zeros(2, env.num_actions))
assert bool(torch.isfinite(obs).all()), "the first step is not finite"
answer = {"version": mujoco.__version__}
"""
PROBES: Dict[str, str] = {"torch": _TORCH, "warp": _WARP, "embedded": _EMBEDDED, "isaacgym": _ISAACGYM}
"""Name -> code that leaves a dict named `answer`. isaacgym is asked before anything imports torch."""


class Answer(NamedTuple):
    """What a probe found: `facts`, or why there are none in `fault`."""

    facts: Dict[str, Any]
    fault: str = ""
    absent: bool = False
    """The package that the probe is about is not installed."""


def ask_all(probes: Dict[str, str], timeout_s: float = 180.0) -> Dict[str, Answer]:
    """Run every probe in a process of its own, all at once. Kernels may have to be compiled: minutes at worst."""
    pipe, ending = subprocess.PIPE, f"\nimport json\nprint('\\n{_MARK}' + json.dumps(answer))"
    running = {
        name: subprocess.Popen([sys.executable, "-c", code + ending], stdout=pipe, stderr=pipe, text=True)
        for name, code in probes.items()
    }
    return {name: _answer(name, process, timeout_s) for name, process in running.items()}


def _answer(name: str, process: subprocess.Popen[str], timeout_s: float) -> Answer:
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return Answer({}, f"no answer within {timeout_s:g} s")
    if process.returncode < 0:
        return Answer({}, f"the process that tried it ended by {signal.Signals(-process.returncode).name}")
    for line in out.splitlines():
        if line.startswith(_MARK):
            return Answer(json.loads(line[len(_MARK) :]))
    last = (err.strip().splitlines() or [f"exit code {process.returncode} without a word"])[-1]
    return Answer({}, last, absent=last == f"ModuleNotFoundError: No module named '{name}'")
