"""Runs that differ only in their seed, put together: what they reached on average and how far they spread."""

from __future__ import annotations

from pathlib import Path
from statistics import mean, stdev
from typing import Any, Dict, Iterable, List, NamedTuple, Sequence, Tuple

import yaml

from isaac_appo.report.plots import Curve, picture, read_curve

_SEEDS = ("seed", "train.params.seed")
_POINTS = 200


class Group(NamedTuple):
    """Runs of one task and one setting, a seed each."""

    task: str
    label: str
    curves: List[Curve]

    @property
    def finals(self) -> List[float]:
        """The last return of each run."""
        return [curve.reward[-1] for curve in self.curves]


def find_runs(paths: Iterable[Path]) -> List[Path]:
    """The run folders at or below `paths`, links not followed. Raises FileNotFoundError where there is none."""
    found: List[Path] = []
    for path in paths:
        below = sorted(file.parent for file in path.rglob("metrics.csv"))
        if not below:
            raise FileNotFoundError(f"{path}: no metrics.csv at or below it. Give run folders, or the folder runs/")
        found += below
    return list(dict.fromkeys(run.resolve() for run in found))


def group_runs(runs: Sequence[Path]) -> List[Group]:
    """Runs with equal config.yaml but for the seed, labelled by experiment and by what else tells them apart."""
    settings = [_settings(run) for run in runs]
    distinct = [own for i, own in enumerate(settings) if own not in settings[:i]]
    found = [(own, [run for run, other in zip(runs, settings) if other == own]) for own in distinct]
    names = [(str(own.get("task.name", of[0].parent.parent.name)), of[0].parent.name) for own, of in found]
    named = []
    for (task, experiment), (own, members) in zip(names, found):
        like = [other for name, (other, _) in zip(names, found) if name == (task, experiment)]
        keys = dict.fromkeys(key for other in like for key in other)
        apart = [key for key in keys if any(other.get(key) != like[0].get(key) for other in like)]
        named.append((task, " ".join([experiment, *(f"{key}={own.get(key)}" for key in apart)]), members))
    return make_groups(named)


def make_groups(named: Iterable[Tuple[str, str, Sequence[Path]]]) -> List[Group]:
    """(task, label, run folders) to groups; a run without a finished episode is left out, and so is an empty group."""
    groups = [Group(task, label, [read_curve(run / "metrics.csv") for run in runs]) for task, label, runs in named]
    full = [Group(g.task, g.label, [curve for curve in g.curves if curve.reward]) for g in groups]
    return [group for group in full if group.curves]


def _settings(run: Path) -> Dict[str, Any]:
    """The values of config.yaml by dotted key, without the seeds; the run's own path where the file is missing."""
    file = run / "config.yaml"
    config = yaml.safe_load(file.read_text(encoding="utf-8")) or {} if file.is_file() else {"run": str(run)}
    return {key: value for key, value in _flat(config).items() if key not in _SEEDS}


def _flat(tree: Any, prefix: str = "") -> Dict[str, Any]:
    if not isinstance(tree, dict):
        return {prefix[:-1]: tree}
    return {key: value for name, node in tree.items() for key, value in _flat(node, f"{prefix}{name}.").items()}


def mean_and_spread(curves: Sequence[Curve], against: str) -> Tuple[Any, Any, Any]:
    """Grid, mean and standard deviation (n - 1; 0 for one run) over the range that every curve covers.

    against: `steps` or `seconds`. Between its rows a curve is a straight line.
    """
    import numpy as np

    axes = [getattr(curve, against) for curve in curves]
    grid = np.linspace(max(axis[0] for axis in axes), max(min(axis[-1] for axis in axes), axes[0][0]), _POINTS)
    values = np.stack([np.interp(grid, axis, curve.reward) for axis, curve in zip(axes, curves)])
    return grid, values.mean(0), values.std(0, ddof=1) if len(curves) > 1 else np.zeros(_POINTS)


def groups_table(groups: Sequence[Group]) -> str:
    """Markdown: per task the settings by mean final return, best first."""
    lines = ["| task | setting | seeds | final return | env steps | seconds |", "|---|---|---|---|---|---|"]
    for group in sorted(groups, key=lambda g: (g.task, -mean(g.finals))):
        spread = f" ± {stdev(group.finals):.1f}" if len(group.finals) > 1 else ""
        steps = mean(curve.steps[-1] for curve in group.curves)
        seconds = mean(curve.seconds[-1] for curve in group.curves)
        cells = [group.task, group.label, str(len(group.curves)), f"{mean(group.finals):.1f}{spread}"]
        lines.append("| " + " | ".join([*cells, f"{steps:,.0f}", f"{seconds:.1f}"]) + " |")
    return "\n".join(lines)


def draw_groups(groups: Sequence[Group], png: Path) -> None:
    """A row of axes for each task: mean and spread over seeds against env steps, and against wall time."""
    tasks = sorted({group.task for group in groups})
    shape = {"nrows": len(tasks), "ncols": 2, "squeeze": False, "sharey": "row"}
    with picture(png, {"axes.spines.top": False}, figsize=(11.0, 4.2 * len(tasks)), dpi=130, **shape) as grid:
        for task, row in zip(tasks, grid):
            _draw_task(row, task, [group for group in groups if group.task == task])


def _draw_task(row: Any, task: str, groups: Sequence[Group]) -> None:
    minutes = max(curve.seconds[-1] for group in groups for curve in group.curves) > 120
    scales = (("steps", 1e6, "env steps (millions)"), ("seconds", 60.0 if minutes else 1.0, "wall time"))
    for axes, (against, unit, name) in zip(row, scales):
        for group in groups:
            grid, middle, spread = mean_and_spread(group.curves, against)
            seeds = f"{len(group.curves)} seed{'s' if len(group.curves) > 1 else ''}"
            (line,) = axes.plot(grid / unit, middle, linewidth=1.8, label=f"{group.label} ({seeds})")
            low, high = middle - spread, middle + spread
            axes.fill_between(grid / unit, low, high, alpha=0.2, color=line.get_color(), linewidth=0)
        axes.set_xlabel(name)
        axes.set_xlim(left=0.0)
        axes.grid(True, alpha=0.25)
    row[1].set_xlabel(f"wall time ({'min' if minutes else 's'})")
    row[0].set_ylabel("episode return, training mean")
    row[0].set_title(f"{task}: mean ± standard deviation over seeds", loc="left", fontweight="bold")
    row[0].legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none", fontsize=8)
