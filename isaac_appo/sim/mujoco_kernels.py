"""Warp kernels between MuJoCo's float64 rows `[time, qpos, qvel]` and the float32 contract tensors.

MuJoCo stores quaternions as wxyz and a free joint's angular velocity in the body frame; the contract has xyzw and the
world frame. A free joint's linear velocity is that of the frame's origin in world axes on both sides.
"""

# Kernels are Warp's language in Python's clothes: a type checker has nothing true to say about them.
# mypy: ignore-errors

from __future__ import annotations

from isaac_appo.kernels import wp

__all__ = ["pull_state", "push_state", "write_control"]

wp.set_module_options({"enable_backward": False})

_HUGE = wp.constant(wp.float64(1.0e10))  # MuJoCo's own bound on a sane coordinate


@wp.func
def _sane(row: wp.array(dtype=wp.float64)) -> bool:
    """Whether all values are finite and below 1e10 in size."""
    ok = bool(True)  # Warp takes a bare literal for a constant
    for i in range(row.shape[0]):
        if not (wp.abs(row[i]) < _HUGE):  # NaN compares false, so it lands here too
            ok = False
    return ok


@wp.func
def _quat_xyzw(row: wp.array(dtype=wp.float64), at: int) -> wp.quatd:
    """The quaternion at row[at:at+4], stored as wxyz."""
    return wp.quatd(row[at + 1], row[at + 2], row[at + 3], row[at])


@wp.func
def _vec3(row: wp.array(dtype=wp.float64), at: int) -> wp.vec3d:
    return wp.vec3d(row[at], row[at + 1], row[at + 2])


@wp.func
def _store3(out: wp.array(dtype=float), at: int, v: wp.vec3d) -> None:
    for i in range(3):
        out[at + i] = float(v[i])


@wp.kernel
def pull_state(
    elapsed: wp.float64,
    initial: wp.array(dtype=wp.float64),
    rollout: wp.array3d(dtype=wp.float64),
    sensors: wp.array3d(dtype=wp.float64),
    root_q: wp.array(dtype=wp.int32),
    root_v: wp.array(dtype=wp.int32),
    dof_q: wp.array(dtype=wp.int32),
    dof_v: wp.array(dtype=wp.int32),
    site_force: wp.array(dtype=wp.int32),
    site_torque: wp.array(dtype=wp.int32),
    state: wp.array2d(dtype=wp.float64),
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
    late = wp.abs(new[0] - old[0] - elapsed) > wp.float64(0.01) * elapsed
    broken = late or not _sane(new) or not _sane(sense)
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
    initial: wp.array(dtype=wp.float64),
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
    state: wp.array2d(dtype=wp.float64),
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
        q = wp.quatd(
            wp.float64(root_quat[n, a, 0]),
            wp.float64(root_quat[n, a, 1]),
            wp.float64(root_quat[n, a, 2]),
            wp.float64(root_quat[n, a, 3]),
        )
        world = wp.vec3d(
            wp.float64(root_ang_vel[n, a, 0]), wp.float64(root_ang_vel[n, a, 1]), wp.float64(root_ang_vel[n, a, 2])
        )
        body = wp.quat_rotate_inv(wp.normalize(q), world)
        at = root_q[a]
        row[at + 3] = q[3]
        for i in range(3):
            row[at + i] = wp.float64(root_pos[n, a, i])
            row[at + 4 + i] = q[i]
            row[root_v[a] + i] = wp.float64(root_lin_vel[n, a, i])
            row[root_v[a] + 3 + i] = body[i]
    for d in range(dof_q.shape[0]):
        row[dof_q[d]] = wp.float64(dof_pos[n, d])
        row[dof_v[d]] = wp.float64(dof_vel[n, d])
    for s in range(site_wrench.shape[1]):
        for i in range(6):
            site_wrench[n, s, i] = 0.0


@wp.kernel
def write_control(
    efforts: wp.array2d(dtype=float),
    motor: wp.array(dtype=wp.int32),
    scale: wp.array(dtype=wp.float64),
    control: wp.array3d(dtype=wp.float64),
) -> None:
    """control[n, k, motor[d]] = efforts[n, d] * scale[d] in every substep k; a dof with motor -1 has none."""
    n, d = wp.tid()
    if motor[d] >= 0:
        value = wp.float64(efforts[n, d]) * scale[d]
        for k in range(control.shape[1]):
            control[n, k, motor[d]] = value
