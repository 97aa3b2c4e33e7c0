"""The choices of a configuration group that this package ships, each with the comment in its YAML's first line."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Tuple

import isaac_appo.cfg

GROUPS: Tuple[str, ...] = ("task", "train", "sim", "schedule", "advantage", "loss")


def choices(group: str) -> Dict[str, str]:
    """Name -> what the first line's comment says, by name; reads files only, no Hydra."""
    assert isaac_appo.cfg.__file__ is not None
    files = sorted((Path(isaac_appo.cfg.__file__).parent / group).glob("*.yaml"))
    return {file.stem: file.read_text(encoding="utf-8").split("\n", 1)[0].partition("#")[2].strip() for file in files}
