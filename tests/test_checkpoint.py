from __future__ import annotations

import json
import os
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isaac_appo.checkpoint import (
    CheckpointError,
    CheckpointWarning,
    CheckpointWriter,
    list_checkpoints,
    load_checkpoint,
    load_latest,
    read_best,
    read_marker,
    resolve_resume,
    save_best,
    save_checkpoint,
)


def state_of(step: int) -> dict[str, Any]:
    weights = torch.arange(6, dtype=torch.float32).reshape(2, 3) + step
    return {"model": OrderedDict(w=weights, count=torch.tensor(step, dtype=torch.float64)), "epoch": step, "lr": 7e-5}


def names(directory: Path) -> list[str]:
    return [path.name for path in list_checkpoints(directory)]


def test_round_trip_is_exact(tmp_path: Path) -> None:
    state = {**state_of(3), "nested": [(1, None, True, "a"), {0: {"step": torch.tensor(5)}}], "flag": False}
    path = save_checkpoint(tmp_path, state, 3, metrics={"reward": 1.5, "kl": float("nan")})

    loaded = load_checkpoint(path)

    assert path.name == "ckpt_000000003.pth"
    assert torch.equal(loaded["model"]["w"], state["model"]["w"]) and loaded["model"]["w"].dtype == torch.float32
    assert torch.equal(loaded["model"]["count"], state["model"]["count"])
    assert loaded["nested"][0] == (1, None, True, "a") and loaded["lr"] == 7e-5
    assert not torch.equal(loaded["model"]["w"], state_of(4)["model"]["w"])
    marker = read_marker(path)
    assert marker is not None and marker["step"] == 3 and marker["bytes"] == path.stat().st_size
    assert marker["metrics"] == {"reward": 1.5, "kl": None}
    assert json.loads((tmp_path / "latest.json").read_text()) == {"file": path.name, "step": 3}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ckpt_000000003.json", path.name, "latest.json"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (np.float64(1.0), "numpy.float64"),
        (np.float32(1.0), "numpy.float32"),
        (np.zeros(2), "numpy.ndarray"),
        (torch.nn.Parameter(torch.zeros(1)), "Parameter"),
        ({1, 2}, "builtins.set"),
        (Path("x"), "Path"),
        (torch.float32, "torch.dtype"),
    ],
)
def test_refuses_other_types_and_names_the_key_path(tmp_path: Path, value: Any, kind: str) -> None:
    with pytest.raises(CheckpointError, match=r"state\['a'\]\[1\]\['b'\] is a .*" + kind):
        save_checkpoint(tmp_path, {"a": [0, {"b": value}]}, 1)
    assert list(tmp_path.iterdir()) == []


def test_refuses_a_key_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"state\['a'\]: key \(1, 2\) is a tuple"):
        save_checkpoint(tmp_path, {"a": {(1, 2): 0}}, 1)


@pytest.mark.parametrize(
    ("step", "keep", "text"),
    [(1, 1, "keep = 1"), (-1, 2, "step = -1")],
)
def test_refuses_bad_settings(tmp_path: Path, step: int, keep: int, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        save_checkpoint(tmp_path, {}, step, keep)


def test_newest_is_by_integer_whatever_the_padding_and_the_neighbours(tmp_path: Path) -> None:
    for step in (9, 10, 999950, 1000000):
        padded = save_checkpoint(tmp_path, state_of(step), step, keep=9)
        os.replace(padded, tmp_path / f"ckpt_{step}.pth")
        os.replace(padded.with_suffix(".json"), tmp_path / f"ckpt_{step}.json")
    (tmp_path / "wandb_checkpoints").mkdir()
    (tmp_path / "ckpt_2000000.pth").mkdir()
    (tmp_path / ".ckpt_3000000.pth.tmp-77").write_bytes(b"half")
    (tmp_path / "ckpt_temp.pth").write_bytes(b"x")

    loaded = load_latest(tmp_path)

    assert names(tmp_path) == ["ckpt_9.pth", "ckpt_10.pth", "ckpt_999950.pth", "ckpt_1000000.pth"]
    assert loaded is not None and loaded[0]["epoch"] == 1000000 and loaded[1].name == "ckpt_1000000.pth"


def test_prune_keeps_the_newest_and_the_best_and_sweeps_leftovers(tmp_path: Path) -> None:
    leftover = tmp_path / ".ckpt_000000001.pth.tmp-99999"
    leftover.write_bytes(b"half")
    (tmp_path / "ckpt_000000000.pth").write_bytes(b"uncommitted, old")
    for step in range(1, 8):
        path = save_checkpoint(tmp_path, state_of(step), step, keep=3)
        save_best(tmp_path, path, {2: 10.0}.get(step, 1.0))

    assert names(tmp_path) == [f"ckpt_{step:09d}.pth" for step in (2, 5, 6, 7)]
    assert not leftover.exists() and not (tmp_path / "ckpt_000000000.pth").exists()
    assert len(list(tmp_path.glob("ckpt_*.json"))) == 4


def test_prune_spares_what_someone_still_needs(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, keep=2)
    needed = writer.save(state_of(1), 1)
    assert needed is not None
    writer.spare.add(needed)
    for step in range(2, 5):
        writer.save(state_of(step), step)
    assert names(tmp_path) == [f"ckpt_{step:09d}.pth" for step in (1, 3, 4)]
    writer.spare.discard(needed)
    writer.save(state_of(5), 5)
    assert names(tmp_path) == [f"ckpt_{step:09d}.pth" for step in (4, 5)]


def test_failed_delete_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for step in (1, 2):
        save_checkpoint(tmp_path, state_of(step), step, keep=2)

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "no", str(self))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.warns(CheckpointWarning, match=r"ckpt_000000001.* could not be deleted"):
        save_checkpoint(tmp_path, state_of(3), 3, keep=2)
    assert names(tmp_path)[-1] == "ckpt_000000003.pth"


def test_best_ignores_nan_and_worse_and_survives_a_new_reader(tmp_path: Path) -> None:
    first, second = (save_checkpoint(tmp_path, state_of(step), step) for step in (1, 2))
    assert not save_best(tmp_path, first, float("nan")) and read_best(tmp_path) is None
    assert save_best(tmp_path, first, -5.0)
    assert not save_best(tmp_path, second, -6.0) and not save_best(tmp_path, second, float("inf"))
    assert read_best(tmp_path) == (first, -5.0)
    assert save_best(tmp_path, second, -4.0)
    assert read_best(tmp_path) == (second, -4.0)
    assert save_best(tmp_path, first, -9.0, by="evaluation")  # another measure: no rival
    assert not save_best(tmp_path, second, -9.5, by="evaluation")
    assert save_best(tmp_path, second, -8.0, by="evaluation")
    second.unlink()
    assert read_best(tmp_path) is None


@pytest.mark.parametrize("damage", ["truncated", "flipped", "no marker", "empty", "marker is no json"])
def test_a_bad_newest_falls_back_loudly(tmp_path: Path, damage: str) -> None:
    good, bad = (save_checkpoint(tmp_path, state_of(step), step) for step in (1, 2))
    data = bad.read_bytes()
    if damage == "truncated":
        bad.write_bytes(data[: len(data) // 2])
    elif damage == "flipped":
        bad.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
    elif damage == "empty":
        bad.write_bytes(b"")
    else:
        marker = bad.with_suffix(".json")
        marker.unlink() if damage == "no marker" else marker.write_text("{")

    assert names(tmp_path) == [good.name] + [bad.name] * (damage == "flipped")
    with pytest.warns(CheckpointWarning, match="FELL BACK") as caught:
        loaded = load_latest(tmp_path)

    assert loaded is not None and loaded[1] == good and loaded[0]["epoch"] == 1
    assert str(good) in str(caught[0].message) and str(bad) in str(caught[0].message)


def test_files_of_which_none_loads_are_an_error_and_none_at_all_is_none(tmp_path: Path) -> None:
    assert load_latest(tmp_path) is None and load_latest(tmp_path / "missing") is None
    paths = [save_checkpoint(tmp_path, state_of(step), step) for step in (1, 2)]
    for path in paths:
        path.write_bytes(b"garbage")
    with pytest.raises(CheckpointError, match="no checkpoint in") as caught:
        load_latest(tmp_path)
    assert all(str(path) in str(caught.value) for path in paths)


def test_load_checkpoint_names_file_and_reason(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"absent.pth cannot be read: .*No such file"):
        load_checkpoint(tmp_path / "absent.pth")
    torch.save([1, 2], tmp_path / "list.pth")
    with pytest.raises(CheckpointError, match=r"list.pth holds a list, not a dict"):
        load_checkpoint(tmp_path / "list.pth")
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(CheckpointError, match=r"text.pth cannot be decoded"):
        load_checkpoint(tmp_path / "text.pth")


def test_resolve_resume(tmp_path: Path) -> None:
    own, other = tmp_path / "Ant/default/s1/checkpoints", tmp_path / "Ant/default/s2/checkpoints"
    assert resolve_resume("auto", own) is None
    for folder, step in ((own, 1), (own, 2), (other, 7)):
        save_checkpoint(folder, state_of(step), step)

    def step_of(resume: str) -> int | None:
        loaded = resolve_resume(resume, own)
        return None if loaded is None else loaded[0]["epoch"]

    assert step_of("auto") == 2
    assert step_of("never") is None
    assert step_of(str(own / "ckpt_000000001.pth")) == 1
    assert step_of(str(other)) == 7
    assert step_of(str(other.parent)) == 7


@pytest.mark.parametrize("missing", ["Ant/default/s3", "Ant/default/s2/checkpoints/ckpt_000000008.pth"])
def test_a_missing_resume_path_names_the_candidates(tmp_path: Path, missing: str) -> None:
    own, other = tmp_path / "Ant/default/s1/checkpoints", tmp_path / "Ant/default/s2/checkpoints"
    paths = [save_checkpoint(folder, state_of(4), 4) for folder in (own, other)]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(CheckpointError, match="does not exist") as caught:
        resolve_resume(str(tmp_path / missing), own)
    assert all(str(path) in str(caught.value) for path in paths)
    assert sorted(tmp_path.rglob("*")) == before


def test_an_existing_folder_without_checkpoints_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"holds no checkpoint.*None was found nearby"):
        resolve_resume(str(tmp_path), tmp_path / "own")


def test_going_back_sets_the_abandoned_branch_aside(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save_best(tmp_path, save_checkpoint(tmp_path, state_of(step), step, keep=2), float(step))
    with pytest.warns(CheckpointWarning, match=r"ckpt_000000020.pth, ckpt_000000030.pth: later than ckpt_000000015"):
        save_checkpoint(tmp_path, state_of(15), 15, keep=2)

    loaded = load_latest(tmp_path)

    assert loaded is not None and loaded[0]["epoch"] == 15
    assert names(tmp_path / "set_aside") == ["ckpt_000000020.pth", "ckpt_000000030.pth"]
    assert read_best(tmp_path) is None


def test_rewriting_a_step_takes_the_new_state(tmp_path: Path) -> None:
    save_checkpoint(tmp_path, state_of(5), 5)
    path = save_checkpoint(tmp_path, {**state_of(5), "lr": 1.0}, 5)
    assert load_checkpoint(path)["lr"] == 1.0
    assert "previous" not in json.loads(path.with_suffix(".json").read_text())


def test_writer_reports_the_last_good_one(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path, keep=2)
    assert writer.last_path is None
    path = writer.save(state_of(1), 1, {"reward": 2.0})
    assert path is not None and writer.last_path == path
    assert CheckpointWriter(tmp_path).last_path == path
    with pytest.raises(CheckpointError, match=r"state\['x'\]"):  # a mistake in the program is no disk trouble
        writer.save({"x": object()}, 2)
