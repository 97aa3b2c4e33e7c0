from __future__ import annotations

import re
import sys
from importlib import metadata
from pathlib import Path
from typing import Dict, Iterator, Set

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
NAME, TORCH = ("py38.txt", "2.4.1") if sys.version_info < (3, 9) else ("py311.txt", "2.13.0")
LOCK = ROOT / "requirements" / NAME
CUDA = ("nvidia-", "cuda-", "triton")  # torch's own exact pins, on machines with a GPU only


def locked() -> Dict[str, str]:
    lines = [line for line in LOCK.read_text().splitlines() if line and not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9][A-Za-z0-9_.]*", line)] == []
    return {canonicalize_name(name): version for name, version in (line.split("==") for line in lines)}


def needs(name: str) -> Iterator[str]:
    for text in metadata.requires(name) or []:
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def test_the_lock_holds_exact_versions_and_torch_is_pinned() -> None:
    assert locked()["torch"] == TORCH


def test_what_is_installed_is_what_the_lock_says() -> None:
    """Each pin resolves for this Python, and these tests speak of it. A local version (+cpu) may follow."""
    found = {name: metadata.version(name).split("+")[0] for name in locked()}
    assert found == locked()


def test_the_lock_is_complete() -> None:
    names = set(locked())
    missing: Set[str] = {need for name in names for need in needs(name) if need not in names}
    assert {name for name in missing if not name.startswith(CUDA)} == set()
