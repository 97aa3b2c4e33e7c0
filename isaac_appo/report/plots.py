"""The reward curve of a run as a picture."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, List, Mapping, NamedTuple

from isaac_appo.report.csv import read_columns

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LINE, _BEST, _EVAL, _GREY = "#1f5fa8", "#e08214", "#b2182b", "#555555"
_NICE_S = (1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)


class Curve(NamedTuple):
    """The training mean return of a run against env steps and seconds, where it had one."""

    steps: List[float]
    seconds: List[float]
    reward: List[float]


class EvalPoint(NamedTuple):
    """Result of a deterministic evaluation, to be marked in the curve."""

    env_steps: int
    mean: float
    std: float = 0.0


def read_curve(metrics_csv: Path) -> Curve:
    """The finite rows of metrics.csv. Raises OSError."""
    columns = read_columns(metrics_csv, ("env_steps", "elapsed_s", "rewards/step"))
    rows = [row for row in zip(*columns.values()) if all(map(math.isfinite, row))]
    return Curve(*map(list, zip(*rows))) if rows else Curve([], [], [])


def reward_curve(metrics_csv: Path, png: Path, title: str, eval_point: EvalPoint | None = None) -> bool:
    """Draw the training mean return against env steps (millions), wall time on top; mark the best and the evaluation.

    Returns False, and writes nothing, if no row holds a return yet. Raises OSError.
    """
    curve = read_curve(metrics_csv)
    if not curve.reward:
        return False
    padding = {"figure.constrained_layout.w_pad": 0.15, "figure.constrained_layout.h_pad": 0.1}  # inches
    with picture(png, padding, figsize=(8.0, 4.8), dpi=150) as axes:
        _draw(axes, curve, eval_point)
        _time_axis(axes, curve)
        axes.set_title(title, loc="left", fontweight="bold", pad=12)
    return True


@contextlib.contextmanager
def picture(png: Path, style: Mapping[str, Any], **subplots: Any) -> Iterator[Any]:
    """The axes that `pyplot.subplots` makes, to be drawn on without a display; saved at the end. Raises OSError."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    settings: Any = {"font.size": 10, "axes.spines.right": False, **style}
    with pyplot.rc_context(settings):
        figure, axes = pyplot.subplots(layout="constrained", **subplots)
        yield axes
        figure.savefig(png, metadata={"Software": None})
        pyplot.close(figure)


def _draw(axes: Axes, curve: Curve, eval_point: EvalPoint | None) -> None:
    steps, reward = [step / 1e6 for step in curve.steps], curve.reward
    axes.plot(steps, reward, color=_LINE, linewidth=1.8, marker="o" if len(steps) < 3 else None, label="training mean")
    best = reward.index(max(reward))
    axes.plot(
        steps[best], reward[best], "*", color=_BEST, markersize=13, markeredgecolor="white", clip_on=False, zorder=4,
        label=f"best training mean: {reward[best]:.1f}",
    )  # fmt: skip
    if eval_point is not None:
        label = f"evaluation: {eval_point.mean:.1f}" + (f" ± {eval_point.std:.1f}" if eval_point.std else "")
        axes.errorbar(
            eval_point.env_steps / 1e6, eval_point.mean, yerr=eval_point.std or None, fmt="D", color=_EVAL,
            markersize=7, markeredgecolor="white", capsize=3, clip_on=False, zorder=5, label=label,
        )  # fmt: skip
    axes.set_xlabel("env steps (millions)")
    axes.set_ylabel("episode return")
    axes.set_xlim(left=0.0)
    axes.grid(True, alpha=0.25)
    axes.legend(loc="best", frameon=True, framealpha=0.9, edgecolor="none")


def _time_axis(axes: Axes, curve: Curve) -> None:
    """Mark round wall times on top, each above the env step that was reached then."""
    import numpy

    steps, seconds = [0.0, *(step / 1e6 for step in curve.steps)], [0.0, *curve.seconds]
    total = seconds[-1]
    every = next((nice for nice in _NICE_S if total / nice <= 8), max(1, int(total / 8)))
    unit, size = ("s", 1) if total < 120 else ("min", 60) if total < 7200 else ("h", 3600)
    times = [every * count for count in range(int(total / every) + 1)]
    top = axes.twiny()
    top.set_xlim(axes.get_xlim())
    top.set_xticks(numpy.interp(times, seconds, steps), [f"{time / size:g}" for time in times])
    top.set_xlabel(f"wall time ({unit})", color=_GREY)
    top.tick_params(colors=_GREY)
    top.spines["top"].set_color(_GREY)
