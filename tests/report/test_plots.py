from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure

from isaac_appo.report.csv import CsvSink
from isaac_appo.report.plots import EvalPoint, reward_curve


def training(path: Path, updates: int) -> None:
    sink = CsvSink(path)
    for update in range(1, updates + 1):
        reward = 2400.0 / (1.0 + math.exp(-(update - 200) / 45)) - 60 + 40 * math.sin(update * 1.7) * math.sin(update)
        sink.write(update * 16384, update, update * 0.62, {"rewards/step": math.nan if update < 4 else reward})
    sink.close()


def test_curve_is_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures: list[Figure] = []
    original = Figure.savefig

    def save(self: Figure, *arguments: Any, **keywords: Any) -> None:
        figures.append(self)
        original(self, *arguments, **keywords)

    monkeypatch.setattr(Figure, "savefig", save)
    training(tmp_path / "metrics.csv", 400)
    assert reward_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "Ant", EvalPoint(6_553_600, 2290.0, 80.0))

    data = (tmp_path / "curve.png").read_bytes()
    assert data.startswith(b"\x89PNG") and len(data) > 10_000
    axes, top = figures[0].axes
    assert axes.get_xlabel() == "env steps (millions)" and axes.get_ylabel() == "episode return"
    assert top.get_xlabel() == "wall time (min)"
    assert top.get_xlim() == axes.get_xlim()
    # 60 s of 0.62 s an update of 16384 steps: the first minute lies over 60 / 0.62 * 16384 steps
    assert top.get_xticks()[1] == pytest.approx(60 / 0.62 * 16384 / 1e6)
    labels = axes.get_legend_handles_labels()[1]
    assert "evaluation: 2290.0 ± 80.0" in labels and any("best training mean: 23" in label for label in labels)


@pytest.mark.parametrize("updates", [4, 5])
def test_the_shortest_runs_have_a_curve_too(tmp_path: Path, updates: int) -> None:
    training(tmp_path / "metrics.csv", updates)
    assert reward_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "Cartpole")
    assert matplotlib.get_backend().lower() == "agg"


def test_no_return_yet_no_picture(tmp_path: Path) -> None:
    training(tmp_path / "metrics.csv", 3)
    assert not reward_curve(tmp_path / "metrics.csv", tmp_path / "curve.png", "Ant")
    assert not (tmp_path / "curve.png").exists()
