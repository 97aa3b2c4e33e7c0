"""Files that are either the old ones or the new ones, whatever happens while they are written."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any, Callable


def fsync_directory(directory: Path) -> None:
    """Make renames inside `directory` durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_atomic(path: Path, data: bytes, check: Callable[[Path], None] | None = None, durable: bool = True) -> None:
    """Replace `path` by a file holding `data`; on any error the old file stays and no temporary one is left.

    `check` gets the complete temporary file before it takes the place of `path`; by raising it keeps the old one.
    `durable=False` skips the syncs: for files that are worth nothing after a power cut.
    Raises OSError.
    """
    # The name starts with a dot and ends in no known suffix, so that no loader takes a half-written file for a whole.
    temporary = path.with_name(f".{path.name}.tmp-{os.getpid()}")
    try:
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        if check is not None:
            check(temporary)
        os.replace(temporary, path)
        if durable:
            fsync_directory(path.parent)
    finally:
        with contextlib.suppress(OSError):  # normally gone already, by the replace
            os.unlink(temporary)


def write_text(path: Path, text: str, durable: bool = True) -> None:
    """Write UTF-8 text atomically. Raises OSError."""
    write_atomic(path, text.encode("utf-8"), durable=durable)


def write_json(path: Path, value: Any, durable: bool = True) -> None:
    """Write `value` as indented JSON atomically; non-finite floats, which JSON lacks, become null. Raises OSError."""
    finite = json.loads(json.dumps(value), parse_constant=lambda name: None)
    write_text(path, json.dumps(finite, indent=2, allow_nan=False) + "\n", durable=durable)
