"""Load an MJCF file and find out where in MuJoCo's arrays the parts of the engine contract lie."""

from __future__ import annotations

import os
from typing import Dict, List, NamedTuple, Tuple

import mujoco
import numpy as np

from isaac_appo.sim.engine import EngineError, EngineSpec

__all__ = ["ModelMap", "load_model", "map_model"]


class ModelMap(NamedTuple):
    """Where things are. Offsets count float64 values in a state row `[time, qpos, qvel]` or in the sensor data.

    Attributes:
        dof_names: D names of the slides and hinges, in the model's order.
        num_roots: A, free joints.
        offsets: int32 arrays: root_q, root_v [A]; dof_q, dof_v [D]; site_force, site_torque [S]; and motor [D], the
            index of a dof's motor or -1.
        motor_scale: [D] float64, control per effort.
        effort_limit, dof_lower, dof_upper: [D] float64, as in `Engine`.
        initial_state: [1 + nq + nv] float64: zero time and velocity, qpos0 moved inside the joint limits.
    """

    dof_names: Tuple[str, ...]
    num_roots: int
    offsets: Dict[str, np.ndarray]
    motor_scale: np.ndarray
    effort_limit: np.ndarray
    dof_lower: np.ndarray
    dof_upper: np.ndarray
    initial_state: np.ndarray


def load_model(spec: EngineSpec) -> mujoco.MjModel:
    """Compile `spec.model_path` and set its time step. Errors: EngineError with the file and MuJoCo's message."""
    path = spec.model_path
    if not os.path.isfile(path):
        raise EngineError(f"model file {path!r} does not exist; give the path of an MJCF file")
    try:
        model = mujoco.MjModel.from_xml_path(path)
    except (ValueError, mujoco.FatalError) as error:
        raise EngineError(
            f"model file {path!r} does not load: {error}\n  correct the file; "
            f"`python -m mujoco.viewer --mjcf={path}` shows the same message"
        ) from error
    model.opt.timestep = spec.control_dt / spec.substeps
    autoreset = getattr(mujoco.mjtDisableBit, "mjDSBL_AUTORESET", None)  # absent in old versions: the clock tells there
    if autoreset is not None:
        model.opt.disableflags |= autoreset.value
    return model


def _refuse(spec: EngineSpec, what: str, remedy: str) -> EngineError:
    return EngineError(f"model {spec.model_path!r}: {what}; {remedy}")


def _check_state_layout(model: mujoco.MjModel, spec: EngineSpec) -> None:
    """The engine reads full-physics rows as [time, qpos, qvel]; anything more would go unsaved."""
    size = mujoco.mj_stateSize(model, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    if model.na:
        raise _refuse(spec, f"{model.na} actuators have a state of their own", 'use <motor> or dyntype="none"')
    if size != 1 + model.nq + model.nv:
        raise _refuse(spec, f"its state has {size} values, not 1 + nq + nv", "remove plugins and delays from it")
    data = mujoco.MjData(model)
    data.time, data.qpos[:], data.qvel[:] = 1.0, np.arange(2, 2 + model.nq), -np.arange(1, 1 + model.nv)
    row = np.zeros(size)
    mujoco.mj_getState(model, data, row, mujoco.mjtState.mjSTATE_FULLPHYSICS.value)
    if not np.array_equal(row, np.concatenate([[data.time], data.qpos, data.qvel])):
        raise EngineError(f"MuJoCo {mujoco.__version__} orders its state in an unknown way; use 3.2.3 to 4.0")


def _joints(model: mujoco.MjModel, spec: EngineSpec) -> Tuple[List[int], List[int]]:
    """Indices of the free joints and of the slides and hinges."""
    kind = mujoco.mjtJoint
    free = [j for j in range(model.njnt) if model.jnt_type[j] == kind.mjJNT_FREE.value]
    dofs = [j for j in range(model.njnt) if model.jnt_type[j] in (kind.mjJNT_SLIDE.value, kind.mjJNT_HINGE.value)]
    for j in sorted(set(range(model.njnt)) - set(free) - set(dofs)):
        raise _refuse(spec, f"joint {model.joint(j).name!r} is a ball joint", "use three hinges")
    for j in dofs:
        if not model.joint(j).name:
            raise _refuse(spec, f"joint {j} has no name", "name every hinge and slide: tasks find them by name")
    return free, dofs


def _motors(model: mujoco.MjModel, spec: EngineSpec, dofs: List[int]) -> Tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Per dof: index of its motor or -1, control per effort, and the most effort it gives."""
    motor, scale, limit = np.full(len(dofs), -1, np.int32), np.zeros(len(dofs)), np.zeros(len(dofs))
    for i in range(model.nu):
        name = model.actuator(i).name or f"number {i}"
        plain = (
            model.actuator_trntype[i] == mujoco.mjtTrn.mjTRN_JOINT.value
            and model.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_FIXED.value
            and model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_NONE.value
        )
        joint = int(model.actuator_trnid[i, 0])
        per_control = model.actuator_gear[i, 0] * model.actuator_gainprm[i, 0]
        if not plain or joint not in dofs or per_control == 0.0:
            raise _refuse(spec, f"actuator {name!r} is not a plain motor on a hinge or slide", "use <motor joint=…>")
        d = dofs.index(joint)
        if motor[d] >= 0:
            raise _refuse(spec, f"joint {model.joint(joint).name!r} has two motors", "leave it one")
        motor[d], scale[d] = i, 1.0 / per_control
        top = np.abs(model.actuator_ctrlrange[i]).max() if model.actuator_ctrllimited[i] else np.inf
        limit[d] = abs(per_control) * top
    return motor, scale, limit


def _site_sensors(model: mujoco.MjModel, spec: EngineSpec, kind: int) -> np.ndarray:
    """Offset into the sensor data of the sensor of this kind on each of `spec.sites`."""
    word = "force" if kind == mujoco.mjtSensor.mjSENS_FORCE.value else "torque"
    found = {
        model.site(int(model.sensor_objid[i])).name: int(model.sensor_adr[i])
        for i in range(model.nsensor)
        if model.sensor_type[i] == kind
    }
    for site in spec.sites:
        if site not in found:
            raise _refuse(spec, f"site {site!r} has no {word} sensor", f'add <{word} site="{site}"/> under <sensor>')
    return np.array([found[site] for site in spec.sites], np.int32)


def map_model(model: mujoco.MjModel, spec: EngineSpec) -> ModelMap:
    """Find the parts of the contract in the model. Errors: EngineError for what the contract cannot express."""
    _check_state_layout(model, spec)
    free, dofs = _joints(model, spec)
    motor, scale, limit = _motors(model, spec, dofs)
    limited = model.jnt_limited[dofs].astype(bool)
    lower = np.where(limited, model.jnt_range[dofs, 0], -np.inf)
    upper = np.where(limited, model.jnt_range[dofs, 1], np.inf)
    q_at, v_at = 1, 1 + model.nq
    initial = np.concatenate([[0.0], model.qpos0, np.zeros(model.nv)])
    dof_q = (q_at + model.jnt_qposadr[dofs]).astype(np.int32)
    initial[dof_q] = np.clip(initial[dof_q], lower, upper)
    offsets = {
        "root_q": (q_at + model.jnt_qposadr[free]).astype(np.int32),
        "root_v": (v_at + model.jnt_dofadr[free]).astype(np.int32),
        "dof_q": dof_q,
        "dof_v": (v_at + model.jnt_dofadr[dofs]).astype(np.int32),
        "site_force": _site_sensors(model, spec, mujoco.mjtSensor.mjSENS_FORCE.value),
        "site_torque": _site_sensors(model, spec, mujoco.mjtSensor.mjSENS_TORQUE.value),
        "motor": motor,
    }
    names = tuple(model.joint(j).name for j in dofs)
    return ModelMap(names, len(free), offsets, scale, limit, lower, upper, initial)
