"""Warp kernels around a task's own step: ages, dead rows, time-outs, and the rule for broken rows."""

# Kernels are Warp's language in Python's clothes: a type checker has nothing true to say about them.
# mypy: ignore-errors

from __future__ import annotations

from isaac_appo.kernels import STAGGER, philox_uniform, wp

__all__ = ["begin_step", "finish_step", "stagger_ages"]

wp.set_module_options({"enable_backward": False})

_STAGGER = wp.constant(wp.uint32(STAGGER))


@wp.kernel
def stagger_ages(seed: wp.uint64, step: wp.uint64, length: int, progress: wp.array(dtype=wp.int32)) -> None:
    """progress[n] = floor(u * length), u uniform in (0, 1)."""
    n = wp.tid()
    u = philox_uniform(seed, step, wp.uint32(n), _STAGGER)
    progress[n] = wp.min(int(u[0] * float(length)), length - 1)


@wp.kernel
def begin_step(
    terminated: wp.array(dtype=wp.bool),
    truncated: wp.array(dtype=wp.bool),
    fresh: wp.array(dtype=wp.bool),
    progress: wp.array(dtype=wp.int32),
) -> None:
    """Rows that ended in the last step are fresh, at age 0; the others are one step older."""
    n = wp.tid()
    fresh[n] = terminated[n] or truncated[n]
    progress[n] = wp.where(fresh[n], 0, progress[n] + 1)


@wp.kernel
def finish_step(
    length: int,
    clip_obs: float,
    fresh: wp.array(dtype=wp.bool),
    broken: wp.array(dtype=wp.bool),
    progress: wp.array(dtype=wp.int32),
    obs: wp.array2d(dtype=float),
    reward: wp.array(dtype=float),
    terminated: wp.array(dtype=wp.bool),
    truncated: wp.array(dtype=wp.bool),
    invalid: wp.array(dtype=wp.bool),
) -> None:
    """Time-outs, dead rows, clipping, and the rule for broken rows: reward 0, zero observation, terminated."""
    n = wp.tid()
    bad = broken[n] or not wp.isfinite(reward[n])
    for i in range(obs.shape[1]):
        if not wp.isfinite(obs[n, i]):
            bad = True
    for i in range(obs.shape[1]):
        obs[n, i] = wp.where(bad, 0.0, wp.clamp(obs[n, i], -clip_obs, clip_obs))
    if bad or fresh[n]:
        reward[n] = 0.0
        terminated[n] = bad
    truncated[n] = not terminated[n] and not fresh[n] and progress[n] >= length - 1
    invalid[n] = bad
