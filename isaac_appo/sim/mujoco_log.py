"""Where MuJoCo's warnings go: into a run's own MUJOCO_LOG.TXT, and counted where they mean lost contacts."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from typing import Iterator, List

import mujoco

__all__ = ["MujocoLog"]

_MAX_PENDING = 100  # lines kept between two writes: a broken model can warn thousands of times a second
_attached = threading.local()


def _overflow_texts() -> List[str]:
    """The openings of MuJoCo's warnings about full contact and constraint memory, asked of MuJoCo itself."""
    kinds = (mujoco.mjtWarning.mjWARN_CONTACTFULL, mujoco.mjtWarning.mjWARN_CNSTRFULL)
    return [mujoco.mju_warningText(kind.value, 0).split(".")[0] for kind in kinds]


_OVERFLOWS = _overflow_texts()


def _on_warning(text: str) -> None:
    """MuJoCo's warning handler, called on the thread that steps; without one MuJoCo writes into the working folder."""
    log = getattr(_attached, "log", None)
    if log is None:
        logging.getLogger(__name__).warning(text)
    else:
        log.add(text)


class MujocoLog:
    """The warnings of one engine. `add` may be called from several threads at once; the file is written in `flush`."""

    def __init__(self, folder: str) -> None:
        """Write to folder/MUJOCO_LOG.TXT, made at the first warning; to nothing if folder is empty."""
        self._path = os.path.join(folder, "MUJOCO_LOG.TXT") if folder else ""
        self._lock = threading.Lock()
        self._pending: List[str] = []
        self._left_out = 0
        self._overflows = 0
        mujoco.set_mju_user_warning(_on_warning)

    @contextlib.contextmanager
    def attached(self) -> Iterator[None]:
        """Send the warnings that MuJoCo raises on this thread here."""
        before = getattr(_attached, "log", None)
        _attached.log = self
        try:
            yield
        finally:
            _attached.log = before

    def add(self, text: str) -> None:
        """Take one warning."""
        with self._lock:
            self._overflows += any(text.startswith(opening) for opening in _OVERFLOWS)
            if len(self._pending) < _MAX_PENDING:
                self._pending.append(text)
            else:
                self._left_out += 1

    def take_overflows(self) -> int:
        """How many warnings told of dropped contacts or constraints since the last call."""
        with self._lock:
            count, self._overflows = self._overflows, 0
        return count

    def flush(self) -> None:
        """Append what has come since the last call to the file."""
        with self._lock:
            lines, left_out = self._pending, self._left_out
            self._pending, self._left_out = [], 0
        if left_out:
            lines.append(f"... and {left_out} more")
        if lines and self._path:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            with open(self._path, "a", encoding="utf-8") as file:
                file.writelines(f"WARNING: {line.strip()}\n" for line in lines)
