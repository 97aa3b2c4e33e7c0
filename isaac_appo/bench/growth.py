"""How time and memory grow with the number of environments, the horizon and the width of the network.

Each size is measured in a process of its own. Updates are cut into the same number of minibatches at every size, so
that the number of operations is constant and what grows is the work in each.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from isaac_appo.bench import machine
from isaac_appo.bench.files import machine_lines, problem_line, table
from isaac_appo.bench.load import Limits, other_load_now, other_load_warnings
from isaac_appo.bench.probe import ProbeError, Request, probe
from isaac_appo.bench.window import Effort

SCENARIOS = {"Ta": "lockstep_lag1_1_1", "Tc": "collect_1", "Tl": "learn_1"}
START_S = 8.0
"""Seconds that a process takes before it measures, at first guess."""


class Sweep(NamedTuple):
    """One size that grows while the others stay."""

    name: str
    sizes: Sequence[int]
    overrides: Callable[[int], List[str]]


def sweeps(problem: Mapping[str, Any]) -> List[Sweep]:
    """The three, around a problem."""
    num_envs, horizon = problem["num_envs"], problem["horizon"]

    def batch(rows: int) -> str:
        return f"train.params.config.minibatch_size={max(1, rows // problem['minibatches'])}"

    def width(w: int) -> List[str]:
        return [f"train.params.network.mlp.units=[{w},{max(1, w // 2)},{max(1, w // 4)}]"]

    def length(t: int) -> List[str]:
        return [f"train.params.config.horizon_length={t}", batch(num_envs * t)]

    return [
        Sweep("num_envs", [2**n for n in range(6, 15)], lambda n: [f"num_envs={n}", batch(n * horizon)]),
        Sweep("horizon", (8, 16, 32, 64, 128), length),
        Sweep("width", (64, 128, 256, 512, 1024), width),
    ]


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> Dict[str, float]:
    """t = ``fixed_s`` + ``per_unit_s`` * size, and the ``worst`` relative error; nothing below two sizes.

    Least squares on relative errors, or else the largest size alone would decide.
    """
    if len(set(sizes)) < 2:
        return {}
    t = np.asarray(seconds)
    per_unit, fixed = np.polyfit(sizes, t, 1, w=1.0 / t)
    worst = np.max(np.abs((fixed + per_unit * np.asarray(sizes)) / t - 1.0))
    return {"fixed_s": float(fixed), "per_unit_s": float(per_unit), "worst": float(worst)}


def run_growth(
    words: List[str],
    problem: Mapping[str, Any],
    budget_s: float,
    say: Callable[[str], None] = lambda text: None,
    measure: Callable[[Request], Dict[str, Any]] = probe,
    now: Callable[[], float] = time.perf_counter,
    plan: Optional[Sequence[Sweep]] = None,
) -> Dict[str, Any]:
    """Measure every size that fits into ``budget_s``, small ones first; what is left out is named with its reason.

    Args:
        words: overrides of the configuration that the sizes are changed in.
        problem: what ``describe_problem`` says of it.
    """
    warnings = other_load_warnings(other_load_now(), Limits())
    chosen = sweeps(problem) if plan is None else plan
    found: Dict[str, Dict[str, Any]] = {s.name: {"points": [], "skipped": []} for s in chosen}
    deadline = now() + budget_s
    turns = [(rank, sweep, size) for sweep in chosen for rank, size in enumerate(sweep.sizes)]
    for _, sweep, size in sorted(turns, key=lambda turn: turn[0]):  # all grow together: the budget is shared
        points, began = found[sweep.name]["points"], now()
        reason = _over_budget(points, size, deadline - began)
        if not reason:
            request = Request([*words, *sweep.overrides(size)], list(SCENARIOS.values()), Effort(1, 3, 0.5))
            try:
                points.append({**_point(size, measure(request)), "took_s": now() - began})
            except ProbeError as error:
                reason = f"failed: {error}"
        if reason:
            found[sweep.name]["skipped"].append({"size": size, "reason": reason})
            say(f"{sweep.name} {size}: left out, it {reason}")
        else:
            say(f"{sweep.name} {size}: {points[-1]['fps']:,.0f} env steps/s, {points[-1]['peak_mib']:,.0f} MiB")
    for name, each in found.items():
        sizes, points = [p["size"] for p in each["points"]], each["points"]
        fits = {part: fit_line(sizes, [p[part] for p in points]) for part in SCENARIOS if name != "width"}
        each["fit"] = {part: fit for part, fit in fits.items() if fit}
    return {
        "warnings": warnings,
        "failed": "",
        "sweeps": found,
        "machine": machine.describe(),
        "problem": problem,
        "base": f"Around {problem_line(problem)}.",
    }


def _over_budget(points: Sequence[Mapping[str, float]], size: int, left_s: float) -> str:
    """Why a size is not begun. By the size before: the start is paid again, the rest grows by half as much again."""
    growing = max(0.0, points[-1]["took_s"] - START_S) * size / points[-1]["size"] if points else 0.0
    expected = START_S + 1.5 * growing
    if expected <= left_s:
        return ""
    return f"would take about {expected:.0f} s, and {max(0.0, left_s):.0f} s of the budget are left"


def _point(size: int, answer: Mapping[str, Any]) -> Dict[str, float]:
    times = {part: answer["update_s"][name] for part, name in SCENARIOS.items()}
    more = {"peak_mib": answer["peak_mib"], "other_cores": answer["other_cores"]}
    return {"size": size, **times, "fps": answer["rows"] / times["Ta"], **more}


def _row(p: Mapping[str, float]) -> List[str]:
    times = [f"{1e3 * p[part]:.1f}" for part in SCENARIOS]
    return [str(p["size"]), f"{p['fps']:,.0f}", *times, f"{p['peak_mib']:,.0f}", f"{p['other_cores']:.2f}"]


def growth_markdown(report: Mapping[str, Any]) -> str:
    """The report of the growth."""
    parts = ["# Cost growth", report["base"], machine_lines(report)]
    head = ["env steps/s", "Ta, ms", "Tc, ms", "Tl, ms", "peak MiB", "other load, cores"]
    for name, sweep in report["sweeps"].items():
        parts += [f"## {name}", table([name, *head], [_row(point) for point in sweep["points"]])]
        if sweep["skipped"]:
            parts += ["Left out:\n\n" + "\n".join(f"- {name} {s['size']}: it {s['reason']}" for s in sweep["skipped"])]
        fits = [
            f"- {part}: {1e3 * f['fixed_s']:.2f} ms + {1e3 * f['per_unit_s']:.4g} ms x {name} "
            f"(largest error {100 * f['worst']:.0f} %)"
            for part, f in sweep["fit"].items()
        ]
        if fits:
            parts += ["Fitted by least squares on relative errors, per update:\n\n" + "\n".join(fits)]
    return "\n\n".join(parts) + "\n"
