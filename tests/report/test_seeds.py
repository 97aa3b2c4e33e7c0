from __future__ import annotations

from pathlib import Path
from typing import Any, List, Tuple

import numpy as np
import pytest
import yaml

from isaac_appo.report.plots import Curve, read_curve
from isaac_appo.report.seeds import (
    Group,
    draw_groups,
    find_runs,
    group_runs,
    groups_table,
    make_groups,
    mean_and_spread,
)

HEADER = "update,env_steps,elapsed_s,rewards/step\n"
TWO = [Curve([0.0, 10.0], [0.0, 1.0], [0.0, 10.0]), Curve([0.0, 20.0], [1.0, 3.0], [2.0, 22.0])]


def make_run(root: Path, place: str, rows: List[Tuple[int, float, Any]], **config: Any) -> Path:
    """A run folder as training leaves it: `task/experiment/sSEED`."""
    run = root / place
    run.mkdir(parents=True)
    (run / "metrics.csv").write_text(HEADER + "".join(f"{i},{s},{t},{r}\n" for i, (s, t, r) in enumerate(rows)))
    task, _, seed = place.split("/")
    tree = {"task": {"name": task}, "seed": int(seed[1:]), "train": {"params": {"seed": int(seed[1:])}}, **config}
    (run / "config.yaml").write_text(yaml.safe_dump(tree))
    return run


def test_mean_and_spread_on_the_range_that_all_curves_cover() -> None:
    grid, mean, spread = mean_and_spread(TWO, "steps")
    assert (grid[0], grid[-1]) == (0.0, 10.0)
    assert mean[[0, -1]] == pytest.approx([1.0, (10.0 + 12.0) / 2])  # the second curve is 12 at step 10
    assert spread[[0, -1]] == pytest.approx([2.0**0.5, 2.0**0.5])  # of two values d apart: d / sqrt(2)
    grid, mean, _ = mean_and_spread(TWO, "seconds")
    assert (grid[0], grid[-1]) == (1.0, 1.0) and mean[0] == pytest.approx(6.0)
    grid, mean, spread = mean_and_spread(TWO[:1], "steps")
    assert np.all(spread == 0.0) and mean[-1] == pytest.approx(10.0)


def test_rows_before_the_first_episode_ended_are_left_out(tmp_path: Path) -> None:
    run = make_run(tmp_path, "Ant/a/s1", [(8, 0.5, ""), (16, 1.0, 2.0), (24, 1.5, 3.0)])
    assert read_curve(run / "metrics.csv") == Curve([16.0, 24.0], [1.0, 1.5], [2.0, 3.0])
    assert read_curve(make_run(tmp_path, "Ant/a/s2", [(8, 0.5, "")]) / "metrics.csv") == Curve([], [], [])


def test_runs_that_differ_only_in_the_seed_are_one_group(tmp_path: Path) -> None:
    for seed in (1, 2):
        make_run(tmp_path, f"Ant/a/s{seed}", [(8, 1.0, seed)], schedule={"lag": 0})
    make_run(tmp_path, "Ant/a/s3", [(8, 1.0, 3)], schedule={"lag": 1})
    make_run(tmp_path, "Ant/b/s1", [(8, 1.0, 4)], schedule={"lag": 0}, experiment="b")
    make_run(tmp_path, "Ant/c/s1", [(8, 1.0, "")])  # no episode has ended
    groups = group_runs(find_runs([tmp_path]))
    assert [(g.task, g.label, g.finals) for g in groups] == [
        ("Ant", "a schedule.lag=0", [1.0, 2.0]),
        ("Ant", "a schedule.lag=1", [3.0]),
        ("Ant", "b", [4.0]),
    ]


def test_runs_are_found_once_and_a_folder_without_any_is_an_error(tmp_path: Path) -> None:
    run = make_run(tmp_path, "Ant/a/s1", [(8, 1.0, 1.0)])
    (tmp_path / "latest").symlink_to(run)
    assert find_runs([tmp_path, run, tmp_path / "Ant"]) == [run]
    with pytest.raises(FileNotFoundError, match=r"no metrics\.csv at or below"):
        find_runs([tmp_path, tmp_path / "nothing"])


def test_the_table_lists_the_best_setting_of_each_task_first() -> None:
    def group(task: str, label: str, *finals: float) -> Group:
        return Group(task, label, [Curve([0.0, 100.0], [0.0, 2.0], [0.0, final]) for final in finals])

    table = groups_table([group("B", "x", 1.0), group("A", "low", 1.0, 3.0), group("A", "high", 10.0, 14.0)])
    assert table.splitlines()[2:] == [
        "| A | high | 2 | 12.0 ± 2.8 | 100 | 2.0 |",
        "| A | low | 2 | 2.0 ± 1.4 | 100 | 2.0 |",
        "| B | x | 1 | 1.0 | 100 | 2.0 |",
    ]


def test_a_run_without_rewards_makes_no_group(tmp_path: Path) -> None:
    run = make_run(tmp_path, "Ant/a/s1", [(8, 1.0, "")])
    assert make_groups([("Ant", "a", [run])]) == []


def test_the_picture_has_a_row_of_axes_for_each_task(tmp_path: Path) -> None:
    from PIL import Image

    one, two = [Group("A", "x", TWO)], [Group("A", "x", TWO), Group("B", "y", TWO[:1])]
    sizes = []
    for groups in (one, two):
        draw_groups(groups, tmp_path / "p.png")
        with Image.open(tmp_path / "p.png") as image:
            sizes.append(image.size)
            assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 10
    assert sizes[0][0] == sizes[1][0] and sizes[1][1] == 2 * sizes[0][1]
