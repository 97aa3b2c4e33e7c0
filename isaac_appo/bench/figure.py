"""The figures of the reports."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Tuple

from isaac_appo.bench.window import STAGES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"solo": "#9db7d5", "sync": "#5b8c5a", "lockstep": "#1f5fa8", "rl_games": "#e08214"}
STAGE_COLOURS = dict(zip(STAGES, ("#9db7d5", "#1f5fa8", "#b7a6d8", "#5b8c5a", "#e08214", "#bbbbbb")))
PARTS = (("Ta", "lockstep, per update"), ("Tc", "collect alone"), ("Tl", "learn alone"))
_PART_COLOURS = {"Ta": "#1f5fa8", "Tc": "#9db7d5", "Tl": "#e08214"}
_STYLE: Dict[str, Any] = {"font.size": 9, "axes.spines.right": False, "axes.spines.top": False}


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def suite_figure(report: Mapping[str, Any], png: Path) -> None:
    """Speed of each scenario with its spread and the bound; core time per sample by stage. Raises OSError."""
    pyplot = _pyplot()
    measured = {name: s for name, s in report["scenarios"].items() if s["fps"]}
    with pyplot.rc_context(_STYLE):
        height = 1.6 + 0.26 * len(measured)
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11.0, height), dpi=150, layout="constrained")
        _speeds(left, measured, report["overlap"])
        _stages(right, {name: s for name, s in measured.items() if s["core_s_per_sample_by_stage"]})
        title = f"{report['problem']['task']}, {report['problem']['num_envs']} envs, {report['machine']['cores']} cores"
        figure.suptitle(title, fontweight="bold")
        figure.savefig(png, metadata={"Software": None})
        pyplot.close(figure)


def _speeds(axes: Axes, measured: Mapping[str, Any], overlap: Mapping[str, Any]) -> None:
    names = list(measured)
    for at, (name, s) in enumerate(measured.items()):
        kind = next((k for k in COLOURS if name.startswith(k)), "solo")
        median, low, high = (s["fps"][key] for key in ("median", "low", "high"))
        axes.barh(at, median, color=COLOURS[kind], xerr=[[median - low], [high - median]], error_kw={"capsize": 2})
        axes.text(high, at, f"  {median:,.0f}", va="center", fontsize=8)
    for name, o in overlap.items():
        at = names.index(name)
        axes.plot([o["bound"]["fps"]] * 2, [at - 0.45, at + 0.45], color="#b2182b", linewidth=1.6)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(right=1.18 * max([s["fps"]["high"] for s in measured.values()], default=1.0))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e3:g}k")
    axes.set_xlabel("env steps/s (median, min-max)" + ("; red: bound" if overlap else ""))


def _stages(axes: Axes, measured: Mapping[str, Any]) -> None:
    names = list(measured)
    starts = [0.0] * len(names)
    for stage in STAGES:
        widths = [1e6 * s["core_s_per_sample_by_stage"][stage] for s in measured.values()]
        axes.barh(range(len(names)), widths, left=starts, color=STAGE_COLOURS[stage], label=stage)
        starts = [a + b for a, b in zip(starts, widths)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("core-microseconds per sample")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=8)


def growth_figure(report: Mapping[str, Any], png: Path) -> None:
    """Seconds per update and memory against each size. Raises OSError."""
    pyplot = _pyplot()
    sweeps: List[Tuple[str, Any]] = [(name, s) for name, s in report["sweeps"].items() if s["points"]]
    with pyplot.rc_context(_STYLE):
        columns = max(1, len(sweeps))
        figure, axes = pyplot.subplots(2, columns, figsize=(4.0 * columns, 6.0), dpi=150, layout="constrained",
                                       squeeze=False)  # fmt: skip
        for column, (name, sweep) in enumerate(sweeps):
            _growth_column(axes[0][column], axes[1][column], name, sweep)
        figure.suptitle(f"{report['problem']['task']}, {report['machine']['cores']} cores", fontweight="bold")
        figure.savefig(png, metadata={"Software": None})
        pyplot.close(figure)


def _growth_column(top: Axes, bottom: Axes, name: str, sweep: Mapping[str, Any]) -> None:
    from matplotlib.ticker import LogLocator

    sizes = [point["size"] for point in sweep["points"]]
    for part, label in PARTS:
        line = [1e3 * point[part] for point in sweep["points"]]
        top.plot(sizes, line, "o", markersize=4, color=_PART_COLOURS[part], label=label)
        fit = sweep["fit"].get(part)
        if fit:
            fitted = [1e3 * (fit["fixed_s"] + fit["per_unit_s"] * size) for size in sizes]
            top.plot(sizes, fitted, "-", linewidth=1, color=_PART_COLOURS[part])
    top.set_ylabel("ms per update")
    top.legend(frameon=False, fontsize=8)
    bottom.plot(sizes, [point["peak_mib"] for point in sweep["points"]], "o-", markersize=4, color="#1f5fa8")
    bottom.set_ylabel("peak memory, MiB")
    bottom.set_xlabel(name)
    bottom.set_ylim(0.0, 1.1 * max(point["peak_mib"] for point in sweep["points"]))
    top.set_yscale("log")
    top.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    top.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    for axes in (top, bottom):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        axes.minorticks_off()
        axes.grid(True, alpha=0.25)


def race_figure(report: Mapping[str, Any], png: Path) -> None:
    """Evaluation return against seconds of training, one line per seed. Raises OSError."""
    pyplot = _pyplot()
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(7.0, 4.2), dpi=150, layout="constrained")
        for system, colour in (("ours", COLOURS["lockstep"]), ("rl_games", COLOURS["rl_games"])):
            runs = [run for run in report["runs"] if run["system"] == system]
            for i, run in enumerate(runs):
                label = report["systems"][system] if i == 0 else None
                points = [(p["seconds"], p["return"]) for p in run["history"]]
                axes.plot(*zip(*points), "o-", markersize=3, linewidth=1, color=colour, label=label)
        axes.axhline(report["target"], color="#555555", linewidth=1, linestyle="--")
        axes.set_xlabel("seconds of training, evaluations excluded")
        axes.set_ylabel("deterministic return")
        axes.legend(frameon=False)
        axes.grid(True, alpha=0.25)
        figure.savefig(png, metadata={"Software": None})
        pyplot.close(figure)
