"""Checkpoint files: plain tensors and containers, written so that a crash at any instant leaves a loadable newest one.

A checkpoint is `ckpt_000000123.pth` and, written after it, the sidecar `ckpt_000000123.json`, which is the commit
marker: step, size and SHA-256 of the data. Files are read with `weights_only=True`, always: a checkpoint from a
stranger is data, never code. What is inside is the trainer's business.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import os
import re
import shutil
import warnings
from collections import OrderedDict
from pathlib import Path
from typing import Any, Callable, Collection, Dict, Set, Tuple

import torch

from isaac_appo.errors import UserError
from isaac_appo.report.atomic_file import write_atomic, write_json

Warn = Callable[[str], None]
State = Dict[str, Any]
Loaded = Tuple[State, Path]

BEST = "best.json"
SET_ASIDE = "set_aside"
_NAME = re.compile(r"ckpt_\d+\.pth")
_SCALARS = (str, int, float, bool, type(None))


class CheckpointError(UserError):
    """A checkpoint cannot be used; the text names the file, the reason and what to do."""


class CheckpointWriteError(CheckpointError):
    """A checkpoint could not be written (disk full, permission); the earlier ones are intact."""


class CheckpointWarning(UserWarning):
    """Something about checkpoints that a person must see although the run goes on."""


def _warn(text: str) -> None:
    warnings.warn(text, CheckpointWarning, stacklevel=3)


def save_checkpoint(
    directory: Path,
    state: State,
    step: int,
    keep: int = 3,
    metrics: dict[str, float] | None = None,
    warn: Warn = _warn,
    spare: Collection[Path] = (),
) -> Path:
    """Write `state` as the checkpoint of `step`; delete all but the newest `keep`, `spare` and the best; return it.

    `state` holds tensors, dict, list, tuple, str, int, float, bool and None only. A tensor that is a view is stored
    with its whole storage. Checkpoints of a later step belong to a branch that a resume has left: they are moved to
    `set_aside/`, else they would be resumed from next time.

    Raises ValueError (settings), CheckpointError (a type outside the list, with its key path) and
    CheckpointWriteError (the write failed; the earlier checkpoints are intact).
    """
    if keep < 2:
        raise ValueError(f"keep = {keep}: must be at least 2, as the newest may be the one being written.")
    if step < 0:
        raise ValueError(f"step = {step}: must be at least 0.")
    _check_types(state, "state")
    directory = Path(directory)
    path = directory / f"ckpt_{step:09d}.pth"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        _check_free_space(directory)
        buffer = io.BytesIO()  # serialised in memory first: a full disk then shows as a plain OSError of one write
        torch.save(state, buffer)
        _commit(path, buffer.getvalue(), step, metrics or {})
        write_json(directory / "latest.json", {"file": path.name, "step": step})
    except CheckpointWriteError:
        raise
    except (OSError, CheckpointError) as error:
        raise CheckpointWriteError(f"{path} was not written: {error}. Earlier checkpoints are intact.") from error
    _set_aside_newer(path, step, warn)
    _prune(path, keep, warn, spare)
    return path


def _check_types(value: Any, where: str) -> None:
    """Refuse what `weights_only=True` would refuse at load, while it can still be mended. Exact types, as np.float64
    and torch.nn.Parameter are subclasses of allowed ones."""
    kind = type(value)
    if kind in (dict, OrderedDict):
        for key, item in value.items():
            if type(key) not in (str, int):
                raise CheckpointError(f"{where}: key {key!r} is a {type(key).__name__}; keys must be str or int.")
            _check_types(item, f"{where}[{key!r}]")
    elif kind in (list, tuple):
        for index, item in enumerate(value):
            _check_types(item, f"{where}[{index}]")
    elif kind is not torch.Tensor and kind not in _SCALARS:
        raise CheckpointError(
            f"{where} is a {kind.__module__}.{kind.__qualname__}: a checkpoint holds only tensors, dict, list, tuple, "
            "str, int, float, bool and None. Convert it (.item(), .detach(), torch.as_tensor, str)."
        )


def _check_free_space(directory: Path) -> None:
    files = _data_files(directory)
    need = 2 * files[-1].stat().st_size if files else 0
    free = shutil.disk_usage(directory).free
    if free < need:
        raise CheckpointWriteError(
            f"{directory}: {free / 1e6:.1f} MB free, {need / 1e6:.1f} MB (twice the last checkpoint) needed. "
            "Free some space; earlier checkpoints are intact."
        )


def _commit(path: Path, data: bytes, step: int, metrics: dict[str, float]) -> None:
    digest = hashlib.sha256(data).hexdigest()
    marker: dict[str, Any] = {"step": step, "sha256": digest, "bytes": len(data), "metrics": metrics}

    def check(temporary: Path) -> None:
        written = temporary.read_bytes()
        if hashlib.sha256(written).hexdigest() != digest:
            raise CheckpointWriteError(f"{path}: what the disk gives back differs from what was written.")
        _decode(written, temporary)

    if path.is_file() and read_marker(path) is not None:
        # Rewriting a step: the marker must hold for the old data and the new, as the crash may come between the two.
        old = path.read_bytes()
        previous = {"sha256": hashlib.sha256(old).hexdigest(), "bytes": len(old)}
        write_json(_marker_path(path), {**marker, "previous": previous})
    write_atomic(path, data, check)
    write_json(_marker_path(path), marker)


def _set_aside_newer(path: Path, step: int, warn: Warn) -> None:
    newer = [file for file in _data_files(path.parent) if _step(file) > step]
    if not newer:
        return
    aside = path.parent / SET_ASIDE
    try:
        aside.mkdir(exist_ok=True)
        for file in newer:
            with contextlib.suppress(FileNotFoundError):  # an uncommitted file has no marker
                os.replace(_marker_path(file), aside / _marker_path(file).name)  # first: a marker implies its data
            os.replace(file, aside / file.name)
    except OSError as error:
        warn(f"{path.parent}: later checkpoints of an abandoned branch could not be moved to {SET_ASIDE}/: {error}")
        return
    names = ", ".join(file.name for file in newer)
    warn(f"{names}: later than {path.name}, from a branch that this run has left; moved to {aside}.")


def _prune(saved: Path, keep: int, warn: Warn, spare: Collection[Path]) -> None:
    best = read_best(saved.parent)
    kept = list_checkpoints(saved.parent)[-keep:]
    spared = {saved, *spare, *([best[0]] if best else [])}
    old = [file for file in _data_files(saved.parent) if kept and _step(file) < _step(kept[0])]
    doomed = [file for file in old if file not in spared]
    leftovers = list(saved.parent.glob(".ckpt_*.tmp-*"))  # of killed writers: the directory has one writer
    for file in [name for data in doomed for name in (_marker_path(data), data)] + leftovers:
        _delete(file, warn)


def _delete(file: Path, warn: Warn) -> None:
    try:
        with contextlib.suppress(FileNotFoundError):
            file.unlink()
    except OSError as error:
        warn(f"{file} could not be deleted ({error}); the run goes on, the disk may fill.")


def save_best(directory: Path, path: Path, metric: float, by: str = "training") -> bool:
    """Point `best.json` at checkpoint `path` if `metric` is finite and above the best so far; return whether it was.

    `by` names what was measured; a best by another measure is no rival.

    Raises CheckpointWriteError.
    """
    best = read_best(directory)
    rival = best is not None and json.loads((Path(directory) / BEST).read_text()).get("by", "training") == by
    if not math.isfinite(metric) or (rival and best is not None and metric <= best[1]):
        return False
    try:
        write_json(
            Path(directory) / BEST, {"file": Path(path).name, "step": _step(Path(path)), "metric": metric, "by": by}
        )
    except OSError as error:
        raise CheckpointWriteError(f"{Path(directory) / BEST} was not written: {error}.") from error
    return True


class CheckpointWriter:
    """Saves checkpoints for a training loop: a failed save is a warning, three of them in a row an error."""

    MAX_FAILURES = 3

    last_path: Path | None
    """The newest committed checkpoint, of this process or an earlier one; None when there is none."""
    spare: Set[Path]
    """Checkpoints that someone still needs: not deleted while they are in here."""

    def __init__(self, directory: Path, keep: int = 3, warn: Warn = _warn) -> None:
        self.directory = Path(directory)
        self.last_path = newest_checkpoint(self.directory)
        self.spare = set()
        self._keep, self._warn, self._failures = keep, warn, 0

    def save(self, state: State, step: int, metrics: dict[str, float] | None = None) -> Path | None:
        """Save and return the path, or warn and return None. Raises CheckpointWriteError at the last failure in a row,
        and what `save_checkpoint` raises for a state it refuses."""
        try:
            self.last_path = save_checkpoint(self.directory, state, step, self._keep, metrics, self._warn, self.spare)
        except CheckpointWriteError as error:
            self._failures += 1
            count = f"{self._failures} of {self.MAX_FAILURES} failed checkpoints in a row"
            if self._failures >= self.MAX_FAILURES:
                raise CheckpointWriteError(f"{count}: {error} Last good one: {self.last_path}.") from error
            self._warn(f"{count}; training goes on. {error} Last good one: {self.last_path}.")
            return None
        self._failures = 0
        return self.last_path


def list_checkpoints(directory: Path) -> list[Path]:
    """The committed checkpoints (marker present, size right) by ascending integer step."""
    return [path for path in _data_files(Path(directory)) if _refusal(path) is None]


def newest_checkpoint(directory: Path) -> Path | None:
    """The last of them, if there is one."""
    return next(reversed(list_checkpoints(directory)), None)


def read_marker(path: Path) -> dict[str, Any] | None:
    """The commit marker beside checkpoint `path` (step, sha256, bytes, metrics), or None if absent or unreadable."""
    try:
        marker = json.loads(_marker_path(path).read_text(encoding="utf-8"))
        return {**marker, "step": int(marker["step"]), "sha256": str(marker["sha256"]), "bytes": int(marker["bytes"])}
    except (OSError, ValueError, KeyError, TypeError):
        return None


def read_best(directory: Path) -> tuple[Path, float] | None:
    """Path and metric of the best checkpoint, or None if there is none or its file has gone."""
    try:
        best = json.loads((Path(directory) / BEST).read_text(encoding="utf-8"))
        path, metric = Path(directory) / str(best["file"]), float(best["metric"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (path, metric) if path.is_file() and path.parent == Path(directory) else None


def load_checkpoint(path: Path) -> State:
    """Read one checkpoint file onto the CPU, checked against its marker if it has one; nothing in it is executed.

    Raises CheckpointError naming file and reason.
    """
    path = Path(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from error
    marker = read_marker(path)
    if marker is not None and hashlib.sha256(data).hexdigest() not in [entry["sha256"] for entry in _entries(marker)]:
        raise CheckpointError(f"{path} is damaged: its SHA-256 is not the one in {_marker_path(path).name}.")
    return _decode(data, path)


def load_latest(directory: Path, warn: Warn = _warn) -> Loaded | None:
    """State and path of the newest committed checkpoint that is whole; None if the directory holds none at all.

    A bad newer one is passed over with a warning that names it, the reason and the one taken.
    Raises CheckpointError if there are files but none loads: never a silent restart from zero.
    """
    refused: list[str] = []
    for path in reversed(_data_files(Path(directory))):
        reason = _refusal(path)
        try:
            if reason is not None:
                raise CheckpointError(f"{path}: {reason}")
            state = load_checkpoint(path)
        except CheckpointError as error:
            refused.append(str(error))
            continue
        if refused:
            warn("FELL BACK to an older checkpoint, " + str(path) + ", because: " + "; ".join(refused))
        return state, path
    if refused:
        raise CheckpointError(
            f"no checkpoint in {directory} can be resumed: " + "; ".join(refused) + ". To trust a file without marker "
            "name it, resume=FILE; to start anew choose another experiment=."
        )
    return None


def resolve_resume(resume: str, directory: Path) -> Loaded | None:
    """What `resume=auto|never|PATH` means for a run whose checkpoints lie in `directory`: (state, path) or None.

    PATH is a checkpoint file, a run directory or a checkpoints directory. Raises CheckpointError naming candidates if
    it is missing or holds none.
    """
    if resume == "never":
        return None
    if resume == "auto":
        return load_latest(directory)
    path = Path(resume).expanduser()
    if path.is_file():
        return load_checkpoint(path), path
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    loaded = load_latest(folder)
    if loaded is None:
        what = "holds no checkpoint" if path.is_dir() else "does not exist"
        near = _candidates(path, Path(directory))
        found = "Candidates: " + ", ".join(str(item) for item in near) if near else "None was found nearby"
        raise CheckpointError(f"resume={resume}: {path} {what} (rule: auto, never or a path). {found}.")
    return loaded


def _candidates(path: Path, own: Path) -> list[Path]:
    """At most five: the newest checkpoint of this run, of the folders about `path` and of the runs beside it."""
    folders = [own]
    for root in [path, *list(path.parents)[:2]]:
        folders += [root, root / "checkpoints", *sorted(root.glob("*/checkpoints"))]
    newest = [listed[-1] for listed in map(list_checkpoints, folders) if listed]
    return list(dict.fromkeys(newest))[:5]


def _decode(data: bytes, path: Path) -> State:
    try:
        state = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged or hostile file makes the unpickler raise anything
        reason = str(error).strip().split("\n")[0]
        raise CheckpointError(
            f"{path} cannot be decoded as plain tensors and containers ({type(error).__name__}: {reason}); "
            "anything else is refused, as loading it could run its code."
        ) from error
    if not isinstance(state, dict):
        raise CheckpointError(f"{path} holds a {type(state).__name__}, not a dict: this is no checkpoint.")
    return state


def _data_files(directory: Path) -> list[Path]:
    """All `ckpt_<step>.pth` of the directory, committed or not, by ascending integer step."""
    if not directory.is_dir():
        return []
    files = [path for path in directory.iterdir() if _NAME.fullmatch(path.name) and path.is_file()]
    return sorted(files, key=lambda path: (_step(path), path.name))


def _step(path: Path) -> int:
    return int(path.stem.rpartition("_")[2])


def _marker_path(path: Path) -> Path:
    return path.with_suffix(".json")


def _entries(marker: dict[str, Any]) -> list[dict[str, Any]]:
    previous = marker.get("previous")
    return [marker, previous] if isinstance(previous, dict) else [marker]


def _refusal(path: Path) -> str | None:
    """Why `path` is no committed checkpoint, without reading its data; None if it is one."""
    marker = read_marker(path)
    if marker is None:
        return f"no valid commit marker {_marker_path(path).name}"
    sizes = [entry["bytes"] for entry in _entries(marker)]
    size = path.stat().st_size
    return None if size in sizes else f"{size} bytes, the commit marker says {sizes[0]}"
