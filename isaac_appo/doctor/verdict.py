"""From checks to answers: which engines this machine can train with, and what is in the way of the others."""

from __future__ import annotations

from typing import Dict, List, Mapping, NamedTuple, Sequence, Tuple

from isaac_appo.doctor.checks import NO, OK, Check

EMBEDDED = "mujoco"
NEEDS: Dict[str, Tuple[str, ...]] = {
    "mujoco": ("Python", "torch", "Warp", "MuJoCo"),
    "mujoco_warp": ("Python", "torch", "Warp", "MuJoCo", "GPU"),
    "isaacgym": ("Python", "torch", "Isaac Gym", "Isaac Gym GPU"),
}
"""Engine -> the checks that must not fail."""


class Verdict(NamedTuple):
    """Can `engine` train here; if not, `reason` is the first thing in the way, else what it is and what its catch."""

    engine: str
    works: bool
    reason: str


def verdicts(checks: Sequence[Check], engines: Mapping[str, str]) -> List[Verdict]:
    """One for each of `engines` (name -> text, none if the registry cannot be read), and for each other known one."""
    by_name = {check.name: check for check in checks}
    return [_verdict(name, by_name, engines) for name in [*NEEDS, *(name for name in engines if name not in NEEDS)]]


def _verdict(name: str, checks: Mapping[str, Check], engines: Mapping[str, str]) -> Verdict:
    needed = [checks[need] for need in NEEDS.get(name, ())]
    failed = [check for check in needed if check.status == NO]
    if failed:
        return Verdict(name, False, f"{failed[0].name}: {failed[0].fact}")
    if name not in engines:
        return Verdict(name, False, "this version of isaac_appo does not have it")
    catches = [f"{check.name}: {check.fact}" for check in needed if check.status != OK]
    return Verdict(name, True, "; ".join([engines[name], *catches]))
