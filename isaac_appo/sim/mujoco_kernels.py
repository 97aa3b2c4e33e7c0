"""Warp kernels between MuJoCo's rows `[time, qpos, qvel]` and the float32 contract tensors.

The rows are float64 for MuJoCo C and float32 for MuJoCo Warp: the kernels are generic, `FLOAT64` and `FLOAT32` hold
both forms. MuJoCo stores quaternions as wxyz and a free joint's angular velocity in the body frame; the contract has
xyzw and the world frame. A free joint's linear velocity is that of the frame's origin in world axes on both sides.
"""

# Kernels are Warp's language in Python's clothes: a type checker has nothing true to say about them.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any, NamedTuple

from isaac_appo.kernels import wp

__all__ = ["FLOAT32", "FLOAT64", "RowKernels", "sane"]

wp.set_module_options({"enable_backward": False})

_HUGE = wp.constant(wp.float64(1.0e10))  # MuJoCo's own bound on a sane coordinate


@wp.func
def sane(row: wp.array(dtype=Any)) -> bool:
    """Whether all values are finite and below 1e10 in size."""
    ok = bool(True)  # Warp takes a bare literal for a constant
    for i in range(row.shape[0]):
        if not (wp.abs(wp.float64(row[i])) < _HUGE):  # NaN compares false, so it lands here too
            ok = False
    return ok


@wp.func
def _quat_xyzw(row: wp.array(dtype=Any), at: int) -> Any:
    """The quaternion at row[at:at+4], stored as wxyz."""
    return wp.quaternion(row[at + 1], row[at + 2], row[at + 3], row[at])


@wp.func
def _vec3(row: wp.array(dtype=Any), at: int) -> Any:
    return wp.vector(row[at], row[at + 1], row[at + 2])


@wp.func
def _store3(out: wp.array(dtype=float), at: int, v: Any) -> None:
    for i in range(3):
        out[at + i] = float(v[i])


@wp.kernel
def pull_state(
    elapsed: wp.float64,
    initial: wp.array(dtype=Any),
    rollout: wp.array3d(dtype=Any),
    sensors: wp.array3d(dtype=Any),
    root_q: wp.array(dtype=wp.int32),
    root_v: wp.array(dtype=wp.int32),
    dof_q: wp.array(dtype=wp.int32),
    dof_v: wp.array(dtype=wp.int32),
    site_force: wp.array(dtype=wp.int32),
    site_torque: wp.array(dtype=wp.int32),
    state: wp.array2d(dtype=Any),
    root_pos: wp.array3d(dtype=float),
    root_quat: wp.array3d(dtype=float),
    root_lin_vel: wp.array3d(dtype=float),
    root_ang_vel: wp.array3d(dtype=float),
    dof_pos: wp.array2d(dtype=float),
    dof_vel: wp.array2d(dtype=float),
    site_wrench: wp.array3d(dtype=float),
    invalid: wp.array(dtype=wp.bool),
) -> None:
    """Take the last substep as the new state and write its contract row; park a broken row in the initial state.

    Shapes: initial [Q], rollout [N, K, Q], sensors [N, K, R], root_q/root_v [A] and dof_q/dof_v [D] offsets into a row,
    site_force/site_torque [S] offsets into the sensors, state [N, Q]. `elapsed` is the time that every row must have
    moved, in s: a row that did not was cut short or reset by MuJoCo itself.
    """
    n = wp.tid()
    last = rollout.shape[1] - 1
    new = rollout[n, last]
    old = state[n]
    sense = sensors[n, last]
    late = wp.abs(wp.float64(new[0]) - wp.float64(old[0]) - elapsed) > wp.float64(0.01) * elapsed
    broken = late or not sane(new) or not sane(sense)
    invalid[n] = broken
    for i in range(old.shape[0]):
        if broken:
            old[i] = initial[i]
        else:
            old[i] = new[i]
    for a in range(root_q.shape[0]):
        q = _quat_xyzw(old, root_q[a] + 3)
        _store3(root_pos[n, a], 0, _vec3(old, root_q[a]))
        _store3(root_lin_vel[n, a], 0, _vec3(old, root_v[a]))
        _store3(root_ang_vel[n, a], 0, wp.quat_rotate(q, _vec3(old, root_v[a] + 3)))
        for i in range(4):
            root_quat[n, a, i] = float(q[i])
    for d in range(dof_q.shape[0]):
        dof_pos[n, d] = float(old[dof_q[d]])
        dof_vel[n, d] = float(old[dof_v[d]])
    for s in range(site_force.shape[0]):
        for i in range(3):
            if broken:
                site_wrench[n, s, i] = 0.0
                site_wrench[n, s, i + 3] = 0.0
            else:
                site_wrench[n, s, i] = float(sense[site_force[s] + i])
                site_wrench[n, s, i + 3] = float(sense[site_torque[s] + i])


@wp.kernel
def push_state(
    mask: wp.array(dtype=wp.bool),
    initial: wp.array(dtype=Any),
    root_pos: wp.array3d(dtype=float),
    root_quat: wp.array3d(dtype=float),
    root_lin_vel: wp.array3d(dtype=float),
    root_ang_vel: wp.array3d(dtype=float),
    dof_pos: wp.array2d(dtype=float),
    dof_vel: wp.array2d(dtype=float),
    root_q: wp.array(dtype=wp.int32),
    root_v: wp.array(dtype=wp.int32),
    dof_q: wp.array(dtype=wp.int32),
    dof_v: wp.array(dtype=wp.int32),
    state: wp.array2d(dtype=Any),
    site_wrench: wp.array3d(dtype=float),
    invalid: wp.array(dtype=wp.bool),
) -> None:
    """Make the contract rows under mask [N] MuJoCo's rows, with a zero clock and wrench. Shapes as `pull_state`."""
    n = wp.tid()
    if not mask[n]:
        return
    row = state[n]
    invalid[n] = False
    row[0] = initial[0]
    for a in range(root_q.shape[0]):
        q = wp.quaternion(
            row.dtype(root_quat[n, a, 0]),
            row.dtype(root_quat[n, a, 1]),
            row.dtype(root_quat[n, a, 2]),
            row.dtype(root_quat[n, a, 3]),
        )
        world = wp.vector(
            row.dtype(root_ang_vel[n, a, 0]), row.dtype(root_ang_vel[n, a, 1]), row.dtype(root_ang_vel[n, a, 2])
        )
        body = wp.quat_rotate_inv(wp.normalize(q), world)
        at = root_q[a]
        row[at + 3] = q[3]
        for i in range(3):
            row[at + i] = row.dtype(root_pos[n, a, i])
            row[at + 4 + i] = q[i]
            row[root_v[a] + i] = row.dtype(root_lin_vel[n, a, i])
            row[root_v[a] + 3 + i] = body[i]
    for d in range(dof_q.shape[0]):
        row[dof_q[d]] = row.dtype(dof_pos[n, d])
        row[dof_v[d]] = row.dtype(dof_vel[n, d])
    for s in range(site_wrench.shape[1]):
        for i in range(6):
            site_wrench[n, s, i] = 0.0


@wp.kernel
def write_control(
    efforts: wp.array2d(dtype=float),
    motor: wp.array(dtype=wp.int32),
    scale: wp.array(dtype=Any),
    control: wp.array3d(dtype=Any),
) -> None:
    """control[n, k, motor[d]] = efforts[n, d] * scale[d] in every substep k; a dof with motor -1 has none."""
    n, d = wp.tid()
    if motor[d] >= 0:
        value = control.dtype(efforts[n, d]) * scale[d]
        for k in range(control.shape[1]):
            control[n, k, motor[d]] = value


class RowKernels(NamedTuple):
    """The kernels of this file for one float type of the rows."""

    pull_state: wp.Kernel
    push_state: wp.Kernel
    write_control: wp.Kernel


def _for(real: type) -> RowKernels:
    row, rows, steps = wp.array(dtype=real), wp.array2d(dtype=real), wp.array3d(dtype=real)
    return RowKernels(
        wp.overload(pull_state, {"initial": row, "rollout": steps, "sensors": steps, "state": rows}),
        wp.overload(push_state, {"initial": row, "state": rows}),
        wp.overload(write_control, {"scale": row, "control": steps}),
    )


FLOAT64, FLOAT32 = _for(wp.float64), _for(wp.float32)
