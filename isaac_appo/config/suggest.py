"""Did you mean: the known name nearest to one that is not known."""

from __future__ import annotations

import difflib
from typing import Iterable, Optional, Sequence


def nearest(name: str, known: Sequence[str]) -> Optional[str]:
    """The known name most like `name`, upper and lower case alike, or None when none is close."""
    lower = {word.lower(): word for word in known}
    match = difflib.get_close_matches(name.lower(), list(lower), n=1, cutoff=0.6)
    return lower[match[0]] if match else None


def nearest_path(path: str, known: Iterable[str]) -> Optional[str]:
    """The known dotted key most like `path`: its last name elsewhere, else a close one beside it, else anywhere."""
    parent, _, leaf = path.rpartition(".")
    paths = list(known)
    leaves = {candidate.rpartition(".")[2].lower(): candidate for candidate in reversed(paths)}
    if leaf.lower() in leaves:
        return leaves[leaf.lower()]
    beside = {p.rpartition(".")[2]: p for p in paths if p.rpartition(".")[0] == parent}
    match = nearest(leaf, list(beside))
    if match is not None:
        return beside[match]
    match = nearest(leaf, list(leaves))
    return leaves[match] if match is not None else None
