"""How time and memory grow with the number of environments, the horizon and the width of the network.

Each size is measured in a process of its own. Updates are cut into the same number of minibatches at every size, so
that the number of operations is constant and what grows is the work in each.
"""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

import numpy as np

from isaac_appo.bench import machine
from isaac_appo.bench.files import machine_lines, table
from isaac_appo.bench.load import Limits, other_load_now, other_load_warning
from isaac_appo.bench.probe import ProbeError, Request, probe

NUM_ENVS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
HORIZONS = (8, 16, 32, 64, 128)
WIDTHS = (64, 128, 256, 512, 1024)
SCENARIOS = {"Ta": "lockstep_lag1_1_1", "Tc": "collect_1", "Tl": "learn_1"}
START_S = 8.0
"""Seconds that a process takes before it measures, at first guess."""


class Sweep(NamedTuple):
    """One size that grows while the others stay."""

    name: str
    sizes: Sequence[int]
    overrides: Callable[[int], List[str]]


class Base(NamedTuple):
    """What stays."""

    overrides: List[str]
    num_envs: int
    horizon: int
    minibatches: int


def sweeps(base: Base) -> List[Sweep]:
    """The three, from the base configuration."""

    def batch(rows: int) -> str:
        return f"train.params.config.minibatch_size={max(1, rows // base.minibatches)}"

    def width(w: int) -> List[str]:
        return [f"train.params.network.mlp.units=[{w},{max(1, w // 2)},{max(1, w // 4)}]"]

    return [
        Sweep("num_envs", NUM_ENVS, lambda n: [f"num_envs={n}", batch(n * base.horizon)]),
        Sweep("horizon", HORIZONS, lambda t: [f"train.params.config.horizon_length={t}", batch(base.num_envs * t)]),
        Sweep("width", WIDTHS, width),
    ]


class Fit(NamedTuple):
    """t = fixed + per_unit * size, and the largest relative error of it."""

    fixed_s: float
    per_unit_s: float
    worst: float


def fit_line(sizes: Sequence[float], seconds: Sequence[float]) -> Optional[Fit]:
    """Least squares on relative errors, or else the largest size alone would decide; ``None`` below two sizes."""
    if len(set(sizes)) < 2:
        return None
    t = np.asarray(seconds, dtype=float)
    rows = np.stack([np.ones(len(sizes)), np.asarray(sizes, dtype=float)], axis=1) / t[:, None]
    (fixed, per_unit), *_ = np.linalg.lstsq(rows, np.ones(len(sizes)), rcond=None)
    worst = float(np.max(np.abs(rows @ np.array([fixed, per_unit]) - 1.0)))
    return Fit(float(fixed), float(per_unit), worst)


def run_growth(
    base: Base,
    budget_s: float,
    say: Callable[[str], None] = lambda text: None,
    measure: Callable[[Request], Dict[str, Any]] = probe,
    now: Callable[[], float] = time.perf_counter,
    plan: Optional[Sequence[Sweep]] = None,
) -> Dict[str, Any]:
    """Measure every size that fits into ``budget_s``, small ones first; what is left out is named with its reason."""
    warning = other_load_warning(other_load_now(), Limits())
    chosen = list(sweeps(base) if plan is None else plan)
    found: Dict[str, Dict[str, Any]] = {s.name: {"points": [], "skipped": []} for s in chosen}
    deadline = now() + budget_s
    for rank in range(max(len(s.sizes) for s in chosen)):  # all sweeps grow together: the budget is shared
        for sweep in chosen:
            if rank < len(sweep.sizes):
                _one(base, sweep, sweep.sizes[rank], found[sweep.name], deadline, measure, now, say)
    for sweep in chosen:
        points = found[sweep.name]["points"]
        sizes = [p["size"] for p in points]
        fits = {} if sweep.name == "width" else {part: fit_line(sizes, [p[part] for p in points]) for part in SCENARIOS}
        found[sweep.name]["fit"] = {part: dict(f._asdict()) for part, f in fits.items() if f is not None}
    return {"warnings": [warning] if warning else [], "failed": "", "sweeps": found, "machine": machine.describe()}


def _one(
    base: Base,
    sweep: Sweep,
    size: int,
    found: Dict[str, Any],
    deadline: float,
    measure: Callable[[Request], Dict[str, Any]],
    now: Callable[[], float],
    say: Callable[[str], None],
) -> None:
    began = now()
    expected = _expected_s(found["points"], size)
    if began + expected > deadline:
        text = f"would take about {expected:.0f} s, and {max(0.0, deadline - began):.0f} s of the budget are left"
        found["skipped"].append({"size": size, "reason": text})
        say(f"{sweep.name} {size}: left out, it {text}")
        return
    request = Request([*base.overrides, *sweep.overrides(size)], list(SCENARIOS.values()), 1, 3, 0.5)
    try:
        answer = measure(request)
    except ProbeError as error:
        found["skipped"].append({"size": size, "reason": f"failed: {error}"})
        say(f"{sweep.name} {size}: left out, it failed: {error}")
        return
    point = {"size": size, **{part: answer["update_s"][name] for part, name in SCENARIOS.items()}}
    point.update(
        fps=answer["rows"] / point["Ta"],
        peak_mib=answer["peak_mib"],
        other_cores=answer["other_cores"],
        took_s=now() - began,
    )
    found["points"].append(point)
    say(f"{sweep.name} {size}: {point['fps']:,.0f} env steps/s, {point['peak_mib']:,.0f} MiB")


def _expected_s(points: Sequence[Mapping[str, float]], size: int) -> float:
    """From the size before: what does not grow is paid again, what grows does so in proportion, and twice for width."""
    if not points:
        return START_S
    last = points[-1]
    return float(START_S + max(0.0, last["took_s"] - START_S) * (size / last["size"]) * 1.5)


def growth_markdown(report: Mapping[str, Any]) -> str:
    """The report of the growth."""
    parts = ["# Cost growth", report["base"], "\n".join(machine_lines(report))]
    for name, sweep in report["sweeps"].items():
        rows = [
            [
                str(p["size"]),
                f"{p['fps']:,.0f}",
                *(f"{1e3 * p[part]:.1f}" for part in SCENARIOS),
                f"{p['peak_mib']:,.0f}",
                f"{p['other_cores']:.2f}",
            ]
            for p in sweep["points"]
        ]
        head = [name, "env steps/s", "Ta, ms", "Tc, ms", "Tl, ms", "peak MiB", "other load, cores"]
        parts += [f"## {name}", table(head, rows)]
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
