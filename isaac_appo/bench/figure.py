"""The figures of the reports."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping, Tuple

from isaac_appo.bench.window import STAGES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = {"solo": "#9db7d5", "sync": "#5b8c5a", "lockstep": "#1f5fa8", "rl_games": "#e08214"}
STAGE_COLOURS = dict(zip(STAGES, ("#9db7d5", "#1f5fa8", "#b7a6d8", "#5b8c5a", "#e08214", "#bbbbbb")))
PARTS = {
    "Ta": ("lockstep, per update", COLOURS["lockstep"]),
    "Tc": ("collect alone", COLOURS["solo"]),
    "Tl": ("learn alone", COLOURS["rl_games"]),
}


@contextlib.contextmanager
def _saved(png: Path, size: Tuple[float, float], rows: int = 1, columns: int = 1) -> Iterator[Tuple[Any, Any]]:
    """A figure and its axes ``[rows, columns]``, written to ``png`` at the end."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    style: Any = {"font.size": 9, "axes.spines.right": False, "axes.spines.top": False}
    with pyplot.rc_context(style):
        figure, axes = pyplot.subplots(rows, columns, figsize=size, dpi=150, layout="constrained", squeeze=False)
        yield figure, axes
        figure.savefig(png, metadata={"Software": None})
        pyplot.close(figure)


def suite_figure(report: Mapping[str, Any], png: Path) -> None:
    """Speed of each scenario with its spread and the bound; core time per sample by stage. Raises OSError."""
    measured = {name: s for name, s in report["scenarios"].items() if s["fps"]}
    with _saved(png, (11.0, 1.6 + 0.26 * len(measured)), columns=2) as (figure, axes):
        _speeds(axes[0, 0], measured, report["overlap"])
        _stages(axes[0, 1], {name: s for name, s in measured.items() if s["core_s_per_sample_by_stage"]})
        title = f"{report['problem']['task']}, {report['problem']['num_envs']} envs, {report['machine']['cores']} cores"
        figure.suptitle(title, fontweight="bold")


def _speeds(axes: Axes, measured: Mapping[str, Any], overlap: Mapping[str, Any]) -> None:
    for at, (name, s) in enumerate(measured.items()):
        colour = next((colour for kind, colour in COLOURS.items() if name.startswith(kind)), COLOURS["solo"])
        median, low, high = (s["fps"][key] for key in ("median", "low", "high"))
        axes.barh(at, median, color=colour, xerr=[[median - low], [high - median]], capsize=2)
        axes.text(high, at, f"  {median:,.0f}", va="center", fontsize=8)
        if name in overlap:
            axes.plot([overlap[name]["bound"]["fps"]] * 2, [at - 0.45, at + 0.45], color="#b2182b", linewidth=1.6)
    axes.set_yticks(range(len(measured)), list(measured))
    axes.invert_yaxis()
    axes.set_xlim(right=1.18 * max([s["fps"]["high"] for s in measured.values()], default=1.0))
    axes.xaxis.set_major_formatter(lambda x, _: f"{x / 1e3:g}k")
    axes.set_xlabel("env steps/s (median, min-max)" + ("; red: bound" if overlap else ""))


def _stages(axes: Axes, measured: Mapping[str, Any]) -> None:
    names, starts = list(measured), [0.0] * len(measured)
    for stage, colour in STAGE_COLOURS.items():
        widths = [1e6 * s["core_s_per_sample_by_stage"][stage] for s in measured.values()]
        axes.barh(range(len(names)), widths, left=starts, color=colour, label=stage)
        starts = [a + b for a, b in zip(starts, widths)]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("core-microseconds per sample")
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=3, frameon=False, fontsize=8)


def growth_figure(report: Mapping[str, Any], png: Path) -> None:
    """Seconds per update and memory against each size. Raises OSError."""
    sweeps = {name: sweep for name, sweep in report["sweeps"].items() if sweep["points"]}
    columns = max(1, len(sweeps))
    with _saved(png, (4.0 * columns, 6.0), rows=2, columns=columns) as (figure, axes):
        for column, (name, sweep) in enumerate(sweeps.items()):
            _growth_column(axes[0, column], axes[1, column], name, sweep)
        figure.suptitle(f"{report['problem']['task']}, {report['machine']['cores']} cores", fontweight="bold")


def _growth_column(top: Axes, bottom: Axes, name: str, sweep: Mapping[str, Any]) -> None:
    from matplotlib.ticker import LogLocator

    sizes = [point["size"] for point in sweep["points"]]
    for part, (label, colour) in PARTS.items():
        top.plot(sizes, [1e3 * p[part] for p in sweep["points"]], "o", markersize=4, color=colour, label=label)
        if part in sweep["fit"]:
            fit = sweep["fit"][part]
            fitted = [1e3 * (fit["fixed_s"] + fit["per_unit_s"] * size) for size in sizes]
            top.plot(sizes, fitted, "-", linewidth=1, color=colour)
    memory = [point["peak_mib"] for point in sweep["points"]]
    bottom.plot(sizes, memory, "o-", markersize=4, color=COLOURS["lockstep"])
    bottom.set(xlabel=name, ylabel="peak memory, MiB", ylim=(0.0, 1.1 * max(memory)))
    top.set(ylabel="ms per update", yscale="log")
    top.legend(frameon=False, fontsize=8)
    top.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    top.yaxis.set_major_formatter(lambda y, _: f"{y:g}")
    for axes in (top, bottom):
        axes.set_xscale("log", base=2)
        axes.set_xticks(sizes, [str(size) for size in sizes], rotation=45)
        axes.minorticks_off()
        axes.grid(True, alpha=0.25)


def race_figure(report: Mapping[str, Any], png: Path) -> None:
    """Evaluation return against seconds of training, one line per seed. Raises OSError."""
    with _saved(png, (7.0, 4.2)) as (_, grid):
        axes = grid[0, 0]
        for system, colour in (("ours", COLOURS["lockstep"]), ("rl_games", COLOURS["rl_games"])):
            label = report["systems"][system]
            for run in (run for run in report["runs"] if run["system"] == system):
                points = [(p["seconds"], p["return"]) for p in run["history"]]
                axes.plot(*zip(*points), "o-", markersize=3, linewidth=1, color=colour, label=label)
                label = None  # one entry a system in the legend
        axes.axhline(report["target"], color="#555555", linewidth=1, linestyle="--")
        axes.set(xlabel="seconds of training, evaluations excluded", ylabel="deterministic return")
        axes.legend(frameon=False)
        axes.grid(True, alpha=0.25)
