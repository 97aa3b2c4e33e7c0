"""The directory of one run: deterministic path, exclusive lock, everything needed to resume or to read the run."""

from __future__ import annotations

import fcntl
import importlib.metadata
import json
import os
import platform
import re
import socket
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Iterable

from isaac_appo.errors import UserError
from isaac_appo.report.atomic_file import write_json, write_text

_LOCK = ".lock"
_FOLDERS = ("checkpoints", "tb", "export", "nan_dump")
_USED = ("run.json", "config.yaml", "metrics.csv")  # any of these, or a checkpoint: the directory holds a run
_PACKAGES = ("torch", "warp-lang", "mujoco")


class RunDirError(UserError):
    """The run directory cannot be used as asked; the text says what to type instead."""


class RunDirBusy(RunDirError):  # noqa: N818 (it says what is the case)
    """Another process trains in this run directory."""


class RunDir:
    """`<root>/<task>/<experiment or "default">/s<seed>/`, locked by this process until `close`.

    `create` only takes the lock; `prepare` decides whether the run may go on here and makes the folders.
    """

    def __init__(self, root: Path, path: Path, lock: int, identity: dict[str, Any]) -> None:
        self.root, self.path = root, path
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tb"
        self.config_yaml = path / "config.yaml"
        self.overrides_txt = path / "overrides.txt"
        self.run_json = path / "run.json"
        self.metrics_csv = path / "metrics.csv"
        self.heartbeat_json = path / "heartbeat.json"
        self.log_txt = path / "log.txt"
        self.curve_png = path / "curve.png"
        self.trace_json = path / "trace.json"
        self._lock: int | None = lock
        self._identity = identity
        self._last_heartbeat = -float("inf")

    @classmethod
    def create(cls, root: str | Path, task: str, experiment: str, seed: int) -> RunDir:
        """Make and lock the directory. Raises RunDirBusy if a process holds it, RunDirError on a bad name."""
        identity = {"task": task, "experiment": experiment or "default"}
        for key, name in identity.items():
            if not re.fullmatch(r"[A-Za-z0-9_.-]+", name) or set(name) == {"."}:
                raise RunDirError(f"{key}={name!r}: only letters, digits, '_', '-' and '.', as it names a folder.")
        root = Path(root).expanduser().absolute()
        path = root.joinpath(*identity.values(), f"s{seed}")
        path.mkdir(parents=True, exist_ok=True)
        return cls(root, path, _take_lock(path), {**identity, "seed": seed})

    def prepare(self, resume: str) -> None:
        """Allow or refuse to train here under `resume=auto|never|PATH`, then make folders, `run.json` and `latest`.

        Raises RunDirError, having touched nothing, if `never`, or a checkpoint of another run, meets a used directory:
        its metrics and checkpoints would be lost.
        """
        source = Path(resume).expanduser().resolve()
        own = resume == "auto" or (resume != "never" and self.path.resolve() in (source, *source.parents))
        if not own and self._is_used():
            raise RunDirError(
                f"resume={resume}: {self.path} already holds a run, which would be lost. "
                "Use experiment=NAME for a new one, or resume=auto to go on with this one."
            )
        for name in _FOLDERS:
            (self.path / name).mkdir(exist_ok=True)
        self.write_run_json(**_environment(), status="running", exit_code=None, start=_now(), end=None)
        _point_latest(self.root, self.path)

    def write_config(self, yaml: str, overrides: Iterable[str]) -> None:
        """Store the resolved configuration and what was typed to get it, one override a line."""
        write_text(self.config_yaml, yaml)
        write_text(self.overrides_txt, "".join(f"{line}\n" for line in overrides))

    def write_run_json(self, **updates: Any) -> None:
        """Merge `updates` into run.json, atomically; what an earlier process of this run stored stays."""
        stored = self.read_run_json()
        stored.setdefault("first_start", updates.get("start", _now()))
        write_json(self.run_json, {**self._identity, **stored, **updates})

    def read_run_json(self) -> dict[str, Any]:
        """The contents of run.json; empty before the first `prepare`. Raises RunDirError if it is damaged."""
        try:
            return dict(json.loads(self.run_json.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return {}
        except ValueError as error:
            raise RunDirError(f"{self.run_json} is damaged ({error}); delete or mend it.") from error

    def heartbeat(self, update: int, env_steps: int) -> None:
        """Rewrite heartbeat.json, at most once a second: what a health check reads."""
        now = time.monotonic()
        if now - self._last_heartbeat < 1.0:
            return
        self._last_heartbeat = now
        beat = {"unix_time": time.time(), "pid": os.getpid(), "update": update, "env_steps": env_steps}
        write_json(self.heartbeat_json, beat, durable=False)

    def append_log(self, text: str) -> None:
        """Add `text` to log.txt, its first line stamped with the UTC time."""
        with open(self.log_txt, "a", encoding="utf-8") as file:
            file.write(f"{_now()} {text}\n")

    def close(self, status: str, exit_code: int) -> None:
        """Store how the run ended and release the lock. A second call does nothing."""
        try:
            if self._lock is not None:
                self.write_run_json(status=status, exit_code=exit_code, end=_now())
        finally:
            self.release()

    def release(self) -> None:
        """Give up the lock and write nothing: for a run that was refused before `prepare`."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _is_used(self) -> bool:
        has_checkpoint = self.checkpoints.is_dir() and any(self.checkpoints.iterdir())
        return has_checkpoint or any((self.path / name).exists() for name in _USED)


def _take_lock(path: Path) -> int:
    # The lock file is never deleted: a second process could lock the deleted one and a third the new one.
    descriptor = os.open(path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        owner = os.pread(descriptor, 200, 0).decode("utf-8", "replace").strip() or "unknown"
        os.close(descriptor)
        text = f"{path} is in use by process {owner}. Wait for it, or train beside it with experiment=NAME."
        raise RunDirBusy(text) from error
    except OSError as error:
        os.close(descriptor)
        text = f"{path} cannot be locked ({error}); choose a run_root= on a file system with locks."
        raise RunDirError(text) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    return descriptor


def _point_latest(root: Path, path: Path) -> None:
    link = root / "latest"
    temporary = root / f".latest.tmp-{os.getpid()}"
    try:
        if link.exists() and not link.is_symlink():
            raise FileExistsError(f"{link} is no symlink")
        if temporary.is_symlink():
            temporary.unlink()
        temporary.symlink_to(os.path.relpath(path, root))
        os.replace(temporary, link)
    except OSError as error:  # a convenience: no reason to stop a training run
        warnings.warn(f"{link} was not updated: {error}", RuntimeWarning, stacklevel=3)


def _environment() -> dict[str, Any]:
    sha, dirty = _git_state(Path(__file__).parent)
    versions = {"python": platform.python_version(), **{name: _version(name) for name in _PACKAGES}}
    host = {"host": socket.gethostname(), "platform": platform.platform(), "cpus": os.cpu_count(), "pid": os.getpid()}
    return {"versions": versions, "git_sha": sha, "git_dirty": dirty, **host, "command": sys.argv}


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _git_state(folder: Path) -> tuple[str | None, bool | None]:
    """Commit and whether tracked files differ from it; (None, None) outside a repository or without git."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(folder), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=10).stdout.strip()

    try:
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--untracked-files=no"))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
