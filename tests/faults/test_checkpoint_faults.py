from __future__ import annotations

import builtins
import contextlib
import errno
import os
import pickle
import random
import resource
import shutil
import signal
import time
from collections import namedtuple
from pathlib import Path
from typing import Any, Callable

import pytest
import torch

from isaac_appo.checkpoint import (
    CheckpointError,
    CheckpointWarning,
    CheckpointWriteError,
    CheckpointWriter,
    list_checkpoints,
    load_checkpoint,
    load_latest,
    save_checkpoint,
)

STEPS = [(builtins, "open"), (os, "open"), (os, "fsync"), (os, "replace"), (torch, "save"), (torch, "load")]


def state_of(step: int, size: int = 1000) -> dict[str, Any]:
    return {"epoch": step, "w": torch.full((size,), float(step))}


class FaultyFS:
    """Counts the primitive operations of a save; the k-th fails, before or after it is done."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, fail_at: int, late: bool) -> None:
        self.count, self.fail_at, self.late = 0, fail_at, late
        for owner, name in STEPS:
            monkeypatch.setattr(owner, name, self._wrap(getattr(owner, name)))

    def _wrap(self, original: Callable[..., Any]) -> Callable[..., Any]:
        def operation(*arguments: Any, **keywords: Any) -> Any:
            self.count += 1
            if self.count == self.fail_at and not self.late:
                raise OSError(errno.ENOSPC, "no space left on device")
            result = original(*arguments, **keywords)
            if self.count == self.fail_at:
                raise OSError(errno.EIO, "input/output error")
            return result

        return operation


def save_with_fault(directory: Path, state: dict[str, Any], step: int, fail_at: int, late: bool) -> bool:
    """Save with the `fail_at`-th operation failing; whether it was reached."""
    with pytest.MonkeyPatch.context() as patch:
        filesystem = FaultyFS(patch, fail_at, late)
        with contextlib.suppress(CheckpointWriteError):
            save_checkpoint(directory, state, step, keep=2)
        return filesystem.count >= fail_at


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("step", [2, 1])  # 1: the same step is written again
def test_a_fault_at_any_step_leaves_a_loadable_newest(tmp_path: Path, step: int, late: bool) -> None:
    outcomes = set()
    for fail_at in range(1, 100):
        directory = tmp_path / str(fail_at)
        save_checkpoint(directory, {**state_of(1), "written": "before"}, 1)
        reached = save_with_fault(directory, {**state_of(step), "written": "after"}, step, fail_at, late)
        for marker in directory.glob("ckpt_*.json"):
            load_checkpoint(marker.with_suffix(".pth"))  # a marker implies its data, whole
        loaded = load_latest(directory, warn=lambda text: None)
        assert loaded is not None
        assert float(loaded[0]["w"][0]) == float(loaded[0]["epoch"])
        assert not list(directory.glob(".*tmp*"))
        outcomes.add(loaded[0]["written"])
        if not reached:
            break
    assert fail_at > 12 and not reached
    assert loaded is not None and loaded[0]["written"] == "after"
    assert outcomes == {"before", "after"}


def test_killed_while_saving_the_newest_always_loads(tmp_path: Path) -> None:
    dice = random.Random(5)
    step = 0
    save_checkpoint(tmp_path, state_of(0), 0)
    blob = torch.zeros(200_000)  # made before the fork: no tensor maths in the child
    for _round in range(10):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                for later in range(step + 1, step + 10_000):
                    save_checkpoint(tmp_path, {"epoch": later, "w": blob}, later, keep=2)
                    os.write(writer, b".")
            finally:
                os._exit(1)
        os.close(writer)
        os.read(reader, 1)  # at least one is through, and the next is under way
        time.sleep(dice.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reader)
        loaded = load_latest(tmp_path, warn=lambda text: None)
        assert loaded is not None and loaded[0]["epoch"] > step
        step = loaded[0]["epoch"]
    assert len(list_checkpoints(tmp_path)) >= 2


def test_file_size_limit_keeps_the_old_one_and_training_goes_on(tmp_path: Path) -> None:
    writer = CheckpointWriter(tmp_path)
    old = writer.save(state_of(1), 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, hard))
    try:
        with pytest.warns(CheckpointWarning, match=r"1 of 3 failed.*training goes on.*ckpt_000000001.pth"):
            assert writer.save(state_of(2, 100_000), 2) is None
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    loaded = load_latest(tmp_path)
    assert loaded is not None and loaded[1] == old == writer.last_path
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ckpt_000000001.json", "ckpt_000000001.pth", "latest.json"]
    assert writer.save(state_of(2, 100_000), 2) is not None


def test_the_third_failure_in_a_row_is_an_error_and_a_success_resets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    warnings: list[str] = []
    writer = CheckpointWriter(tmp_path, warn=warnings.append)

    def fail(_descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "no space left on device")

    def failing(step: int) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fail)
            writer.save(state_of(step), step)

    failing(1)
    failing(2)
    assert len(warnings) == 2 and "2 of 3" in warnings[1] and "no space left" in warnings[1]
    writer.save(state_of(3), 3)
    failing(4)
    failing(5)
    with pytest.raises(CheckpointWriteError, match=r"3 of 3 .*Last good one: .*ckpt_000000003.pth"):
        failing(6)


def test_free_space_is_checked_before_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    size = save_checkpoint(tmp_path, state_of(1), 1).stat().st_size
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 2 * size))
    save_checkpoint(tmp_path, state_of(2), 2)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(0, 0, 2 * size - 1))
    with pytest.raises(CheckpointWriteError, match="MB free"):
        save_checkpoint(tmp_path, state_of(3), 3)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["ckpt_000000001.pth", "ckpt_000000002.pth"]


def test_a_disk_that_lies_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_checkpoint(tmp_path, state_of(1), 1)
    monkeypatch.setattr(Path, "read_bytes", lambda path: path.open("rb").read()[:-1] + b"?")
    with pytest.raises(CheckpointWriteError, match="differs from what was written"):
        save_checkpoint(tmp_path, state_of(2), 2)
    monkeypatch.undo()
    assert [path.name for path in list_checkpoints(tmp_path)] == ["ckpt_000000001.pth"]


class Payload:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("dump", [torch.save, lambda obj, path: path.write_bytes(pickle.dumps(obj, protocol=2))])
def test_a_hostile_pickle_is_refused_and_does_not_run(tmp_path: Path, dump: Callable[[Any, Path], Any]) -> None:
    target, path = tmp_path / "pwned", tmp_path / "ckpt_000000001.pth"
    dump({"model": Payload(target)}, path)
    with pytest.raises(CheckpointError, match=r"ckpt_000000001.pth cannot be decoded.*refused"):
        load_checkpoint(path)
    assert not target.exists()
    with pytest.raises(CheckpointError, match=r"state\['model'\]"):
        save_checkpoint(tmp_path, {"model": Payload(target)}, 2)
    assert not target.exists()
