"""One measurement in a process of its own, whose peak memory is therefore that of what it measured.

Run as ``python -m isaac_appo.bench.probe``: reads a JSON request from standard input, writes the answer to a file.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, NamedTuple

TIMEOUT_S = 900.0


class ProbeError(RuntimeError):
    """A probe failed; the text is what it said."""


class Request(NamedTuple):
    """What to measure: the first scenario decides the peak memory."""

    overrides: List[str]
    scenarios: List[str]
    warmup: int
    updates: int
    seconds: float


def probe(request: Request) -> Dict[str, Any]:
    """``{"peak_mib", "rows", "update_s": {scenario: seconds}, "other_cores"}``. Raises :class:`ProbeError`."""
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "answer.json"
        command = [sys.executable, "-m", "isaac_appo.bench.probe", str(answer)]
        words = json.dumps(request._asdict())
        try:
            done = subprocess.run(command, input=words, capture_output=True, text=True, timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise ProbeError(f"{request} did not end within {TIMEOUT_S:.0f} s") from None
        if done.returncode != 0:
            raise ProbeError(f"{request} failed with code {done.returncode}:\n{done.stderr[-2000:]}")
        return dict(json.loads(answer.read_text()))


def measure(request: Request) -> Dict[str, Any]:
    """The same in this process."""
    from isaac_appo.bench.machine import peak_memory_mib
    from isaac_appo.bench.problem import Problem
    from isaac_appo.bench.scenario import parse_scenario, run_block
    from isaac_appo.bench.window import Effort
    from isaac_appo.commands.compose import compose

    problem = Problem(compose(request.overrides, "bench").config, common_start=False)
    effort = Effort(request.warmup, request.updates, request.seconds)
    answer: Dict[str, Any] = {"rows": problem.rows, "update_s": {}, "other_cores": 0.0}
    try:
        for name in request.scenarios:
            block = run_block(problem, parse_scenario(name), effort)
            answer.setdefault("peak_mib", peak_memory_mib())
            answer["update_s"][name] = block.update_s
            answer["other_cores"] = max(answer["other_cores"], block.load.other_cores or 0.0)
    finally:
        problem.close()
    return answer


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(json.dumps(measure(Request(**json.load(sys.stdin)))))
