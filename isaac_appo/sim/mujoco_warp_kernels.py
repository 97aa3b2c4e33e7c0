"""Warp kernels between the rows `[time, qpos, qvel]` of engine `mujoco_warp` and MuJoCo Warp's own arrays."""

# Kernels are Warp's language in Python's clothes: a type checker has nothing true to say about them.
# mypy: ignore-errors

from __future__ import annotations

from isaac_appo.kernels import wp
from isaac_appo.sim.mujoco_kernels import sane

__all__ = ["load_rows", "store_rows"]

wp.set_module_options({"enable_backward": False})

_BROKEN = wp.constant(1.0e11)  # s; no sane clock, see `sane`


@wp.kernel
def load_rows(
    initial: wp.array(dtype=float),
    state: wp.array2d(dtype=float),
    control: wp.array3d(dtype=float),
    time: wp.array(dtype=float),
    qpos: wp.array2d(dtype=float),
    qvel: wp.array2d(dtype=float),
    warmstart: wp.array2d(dtype=float),
) -> None:
    """Start a control step: the clock at zero, no warm start, and the initial row in place of a broken one.

    What is not finite never gets into the solver that all rows share; the clock of its row says so in the end. The
    clock counts the current control step only: in float32 a longer one would lose the time step.
    """
    n = wp.tid()
    good = sane(state[n]) and sane(control[n, 0])
    state[n, 0] = 0.0
    time[n] = wp.where(good, 0.0, _BROKEN)
    num_pos = qpos.shape[1]
    for i in range(num_pos):
        qpos[n, i] = wp.where(good, state[n, 1 + i], initial[1 + i])
    for i in range(qvel.shape[1]):
        qvel[n, i] = wp.where(good, state[n, 1 + num_pos + i], initial[1 + num_pos + i])
        warmstart[n, i] = 0.0
    for i in range(control.shape[2]):
        control[n, 0, i] = wp.where(good, control[n, 0, i], 0.0)


@wp.kernel
def store_rows(
    time: wp.array(dtype=float),
    qpos: wp.array2d(dtype=float),
    qvel: wp.array2d(dtype=float),
    rollout: wp.array3d(dtype=float),
) -> None:
    """rollout[n, 0] = [time, qpos, qvel]."""
    n = wp.tid()
    rollout[n, 0, 0] = time[n]
    for i in range(qpos.shape[1]):
        rollout[n, 0, 1 + i] = qpos[n, i]
    for i in range(qvel.shape[1]):
        rollout[n, 0, 1 + qpos.shape[1] + i] = qvel[n, i]
