"""The Warp kernel that starts episodes, for every task."""

# Kernels are Warp's language in Python's clothes: a type checker has nothing true to say about them.
# mypy: ignore-errors

from __future__ import annotations

from isaac_appo.kernels import RESET, philox_uniform, wp

__all__ = ["start_episodes"]

wp.set_module_options({"enable_backward": False})

_RESET = wp.constant(wp.uint32(RESET))
_NEXT_DRAW = wp.constant(wp.uint32(16))


@wp.kernel
def start_episodes(
    fresh: wp.array(dtype=wp.bool),
    seed: wp.uint64,
    clock: wp.array(dtype=wp.int64),
    pos_spread: float,
    vel_spread: float,
    initial_root_pos: wp.array2d(dtype=float),
    initial_root_quat: wp.array2d(dtype=float),
    initial_dof_pos: wp.array(dtype=float),
    dof_lower: wp.array(dtype=float),
    dof_upper: wp.array(dtype=float),
    root_pos: wp.array3d(dtype=float),
    root_quat: wp.array3d(dtype=float),
    root_lin_vel: wp.array3d(dtype=float),
    root_ang_vel: wp.array3d(dtype=float),
    dof_pos: wp.array2d(dtype=float),
    dof_vel: wp.array2d(dtype=float),
) -> None:
    """Put the rows under fresh [N] at the start: roots at rest in the initial pose, dofs drawn around theirs.

    Position: initial + U(-pos_spread, pos_spread), moved inside the limits. Velocity: U(-vel_spread, vel_spread).
    Dof d takes component d % 4 of draw d // 4; the draws of the velocities follow those of the positions.
    """
    n = wp.tid()
    if not fresh[n]:
        return
    step = wp.uint64(clock[0])
    for a in range(initial_root_pos.shape[0]):
        for i in range(3):
            root_pos[n, a, i] = initial_root_pos[a, i]
            root_lin_vel[n, a, i] = 0.0
            root_ang_vel[n, a, i] = 0.0
        for i in range(4):
            root_quat[n, a, i] = initial_root_quat[a, i]
    num_draws = (dof_pos.shape[1] + 3) // 4
    for d in range(dof_pos.shape[1]):
        draw = wp.uint32(d // 4)
        p = philox_uniform(seed, step, wp.uint32(n), _RESET + _NEXT_DRAW * draw)
        v = philox_uniform(seed, step, wp.uint32(n), _RESET + _NEXT_DRAW * (draw + wp.uint32(num_draws)))
        pos = initial_dof_pos[d] + pos_spread * (2.0 * p[d % 4] - 1.0)
        dof_pos[n, d] = wp.clamp(pos, dof_lower[d], dof_upper[d])
        dof_vel[n, d] = vel_spread * (2.0 * v[d % 4] - 1.0)
