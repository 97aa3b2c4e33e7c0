"""One measurement in a process of its own, whose peak memory is therefore that of what it measured."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple

from isaac_appo.bench.machine import peak_memory_mib
from isaac_appo.bench.problem import Problem
from isaac_appo.bench.scenario import parse_scenario, run_block
from isaac_appo.bench.window import Effort
from isaac_appo.commands.compose import compose
from isaac_appo.doctor.ask import ask_all


class ProbeError(RuntimeError):
    """A probe failed; the text is what it said."""


class Request(NamedTuple):
    """What to measure: the first scenario decides the peak memory."""

    overrides: List[str]
    scenarios: List[str]
    effort: Effort


def probe(request: Request) -> Dict[str, Any]:
    """``{"peak_mib", "rows", "update_s": {scenario: seconds}, "other_cores"}``. Raises :class:`ProbeError`."""
    code = f"from isaac_appo.bench.probe import Effort, Request, measure\nanswer = measure({request!r})"
    answer = ask_all({"probe": code}, timeout_s=900.0)["probe"]
    if answer.fault:
        raise ProbeError(f"{request}: {answer.fault}")
    return answer.facts


def measure(request: Request) -> Dict[str, Any]:
    """The same in this process."""
    problem = Problem(compose(request.overrides, "bench").config, common_start=False)
    answer: Dict[str, Any] = {"rows": problem.rows, "update_s": {}, "other_cores": 0.0}
    try:
        for name in request.scenarios:
            block = run_block(problem, parse_scenario(name), request.effort)
            answer.setdefault("peak_mib", peak_memory_mib())
            answer["update_s"][name] = block.update_s
            answer["other_cores"] = max(answer["other_cores"], block.load.other_cores or 0.0)
    finally:
        problem.close()
    return answer
