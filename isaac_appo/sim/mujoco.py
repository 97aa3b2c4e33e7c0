"""Engine `mujoco`: MuJoCo C on the CPU, rows split over our own threads, for MuJoCo 3.2.3 and all later versions.

Each control step is one `mujoco.rollout` per thread, on that thread's own MjData. The warm start is zero at the start
of every control step, so a row's state alone determines its future, whatever thread or neighbour it has.
"""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, Dict, List, NamedTuple, Optional

import mujoco
import numpy as np
import torch
from mujoco import rollout as mujoco_rollout
from torch import Tensor

from isaac_appo.kernels import wp
from isaac_appo.sim.engine import Engine, EngineError, EngineSpec
from isaac_appo.sim.mujoco_kernels import pull_state, push_state, write_control
from isaac_appo.sim.mujoco_log import MujocoLog
from isaac_appo.sim.mujoco_model import load_model, map_model

__all__ = ["MujocoEngine"]

_CONTRACT = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench", "invalid")


class _Part(NamedTuple):
    """The rows of one thread: contiguous views of the engine's arrays, made once."""

    data: mujoco.MjData
    models: List[mujoco.MjModel]
    state: np.ndarray
    control: Optional[np.ndarray]
    warmstart: np.ndarray
    rollout: np.ndarray
    sensors: Optional[np.ndarray]


def _roll_function() -> Callable[[_Part], None]:
    """The unchecked call of `mujoco.rollout`: until 3.2.6 it takes one model and `nroll`, then a list of models."""
    if "nroll" in inspect.signature(mujoco_rollout.rollout).parameters:

        def roll(part: _Part) -> None:
            mujoco_rollout.rollout(
                part.models[0], part.data, part.state, part.control, skip_checks=True,
                nroll=len(part.models), nstep=part.rollout.shape[1], initial_warmstart=part.warmstart,
                state=part.rollout, sensordata=part.sensors,
            )  # fmt: skip
    else:

        def roll(part: _Part) -> None:
            mujoco_rollout.rollout(
                part.models, [part.data], part.state, part.control, skip_checks=True,
                nstep=part.rollout.shape[1], initial_warmstart=part.warmstart,
                state=part.rollout, sensordata=part.sensors,
            )  # fmt: skip

    return roll


class MujocoEngine(Engine):
    """See `Engine`. What is MuJoCo's own:

    `site_wrench` is what the `force` and `torque` sensors of a site give: the wrench that the parent exerts on the
    site's body, motors and joint limits included, in site axes and about the site, at the start of the last substep.
    It balances the contacts, the weight and the inertia of the body and its descendants. It is zero after a reset.

    A row is invalid when a coordinate or a sensor is not finite (or above 1e10), or when its clock did not move by
    `control_dt`: MuJoCo stops a row that goes bad, and versions without mjDSBL_AUTORESET put it in the default state.

    Errors: EngineError for a model that does not load or that the contract cannot express, for a site without both
    sensors, and for a device other than the CPU.
    """

    name = "mujoco"
    host_synchronous = True

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        self.num_envs = spec.num_envs
        self.control_dt = spec.control_dt
        self.device = torch.device(spec.device)
        if self.device.type != "cpu":
            raise EngineError(f"engine mujoco simulates on the CPU, not on {spec.device!r}: set sim_device=cpu")
        self._log = MujocoLog(spec.log_dir)
        with self._log.attached():
            self._model = load_model(spec)
        self._map = map_model(self._model, spec)
        self.dof_names = self._map.dof_names
        self._allocate_private()
        self._allocate_contract()
        self._roll = _roll_function()
        self._parts = self._split(min(spec.threads, spec.num_envs))
        self._pool = ThreadPoolExecutor(len(self._parts), "mujoco") if len(self._parts) > 1 else None
        self.reset(torch.ones(self.num_envs, dtype=torch.bool))

    def _allocate_private(self) -> None:
        """MuJoCo's float64 arrays. They are torch tensors, so that numpy, torch and Warp share the same memory."""
        n, k, m = self.num_envs, self.spec.substeps, self._model
        row = torch.as_tensor(self._map.initial_state)
        self._initial = row.clone()
        self._state = row.repeat(n, 1)
        self._rollout = torch.zeros(n, k, row.numel(), dtype=torch.float64)
        self._control = torch.zeros(n, k, m.nu, dtype=torch.float64)
        self._sensors = torch.zeros(n, k, m.nsensordata, dtype=torch.float64)
        self._warmstart = torch.zeros(n, m.nv, dtype=torch.float64)
        self._motor_scale = torch.as_tensor(self._map.motor_scale)
        self._wp_initial = wp.from_torch(self._initial)
        self._wp_state = wp.from_torch(self._state)
        self._wp_rollout = wp.from_torch(self._rollout)
        self._wp_control = wp.from_torch(self._control)
        self._wp_sensors = wp.from_torch(self._sensors)
        self._wp_motor_scale = wp.from_torch(self._motor_scale)
        self._index = {key: torch.as_tensor(value) for key, value in self._map.offsets.items()}
        self._wp_index = {key: wp.from_torch(value) for key, value in self._index.items()}

    def _allocate_contract(self) -> None:
        n, a, d, s = self.num_envs, self._map.num_roots, len(self.dof_names), len(self.spec.sites)
        start = self._map.initial_state
        self.initial_root_pos = torch.zeros(a, 3)
        self.initial_root_quat = torch.zeros(a, 4)
        for i, at in enumerate(self._map.offsets["root_q"]):
            self.initial_root_pos[i] = torch.as_tensor(start[at : at + 3])
            self.initial_root_quat[i] = torch.as_tensor(start[[at + 4, at + 5, at + 6, at + 3]])
        self.initial_dof_pos = torch.as_tensor(start[self._map.offsets["dof_q"]], dtype=torch.float32)
        self.dof_lower, self.dof_upper, self.effort_limit = (
            torch.as_tensor(x, dtype=torch.float32)
            for x in (self._map.dof_lower, self._map.dof_upper, self._map.effort_limit)
        )
        self.root_pos = self.initial_root_pos.repeat(n, 1, 1)
        self.root_quat = self.initial_root_quat.repeat(n, 1, 1)
        self.root_lin_vel = torch.zeros(n, a, 3)
        self.root_ang_vel = torch.zeros(n, a, 3)
        self.dof_pos = self.initial_dof_pos.repeat(n, 1)
        self.dof_vel = torch.zeros(n, d)
        self.site_wrench = torch.zeros(n, s, 6)
        self.invalid = torch.zeros(n, dtype=torch.bool)
        self._efforts = torch.zeros(n, d)
        self._mask = torch.zeros(n, dtype=torch.bool)
        self._wp = {key: wp.from_torch(getattr(self, key)) for key in _CONTRACT}
        self._wp_efforts = wp.from_torch(self._efforts)
        self._wp_mask = wp.from_torch(self._mask)

    def _split(self, parts: int) -> List[_Part]:
        """Cut the rows into contiguous parts of equal size, give or take one row."""
        edges = np.linspace(0, self.num_envs, parts + 1).astype(int)
        m = self._model

        def cut(tensor: Tensor, a: int, b: int) -> np.ndarray:
            return tensor.numpy()[a:b]

        return [
            _Part(
                data=mujoco.MjData(m),
                models=[m] * int(b - a),
                state=cut(self._state, a, b),
                control=cut(self._control, a, b) if m.nu else None,
                warmstart=cut(self._warmstart, a, b),
                rollout=cut(self._rollout, a, b),
                sensors=cut(self._sensors, a, b) if m.nsensordata else None,
            )
            for a, b in zip(edges[:-1], edges[1:])
        ]

    def _run(self, part: _Part) -> None:
        with self._log.attached():
            self._roll(part)

    def apply_efforts(self, efforts: Tensor) -> None:
        """See `Engine`. MuJoCo clamps to `effort_limit`; an effort on a dof without a motor is void."""
        self._efforts.copy_(efforts)
        inputs = [self._wp_efforts, self._wp_index["motor"], self._wp_motor_scale]
        wp.launch(write_control, self._efforts.shape, inputs=inputs, outputs=[self._wp_control], device="cpu")

    def step(self) -> None:
        """See `Engine`. Errors: EngineError if MuJoCo gives up, with its message."""
        try:
            if self._pool is None:
                self._run(self._parts[0])
            else:
                for _ in self._pool.map(self._run, self._parts):
                    pass
        except mujoco.FatalError as error:
            self._log.flush()
            what = f"MuJoCo stopped: {error}"
            raise EngineError(self._memory_advice(what) if "memory" in what else what) from error
        i, c = self._wp_index, self._wp
        inputs = [self.control_dt, self._wp_initial, self._wp_rollout, self._wp_sensors, i["root_q"], i["root_v"]]
        inputs += [i["dof_q"], i["dof_v"], i["site_force"], i["site_torque"]]
        outputs = [self._wp_state] + [c[key] for key in _CONTRACT]
        wp.launch(pull_state, self.num_envs, inputs=inputs, outputs=outputs, device="cpu")

    def reset(self, mask: Tensor) -> None:
        """See `Engine`."""
        self._mask.copy_(mask)
        i, c = self._wp_index, self._wp
        inputs = [self._wp_mask, self._wp_initial] + [c[key] for key in _CONTRACT[:6]]
        inputs += [i["root_q"], i["root_v"], i["dof_q"], i["dof_v"]]
        outputs = [self._wp_state, c["site_wrench"], c["invalid"]]
        wp.launch(push_state, self.num_envs, inputs=inputs, outputs=outputs, device="cpu")

    def _memory_advice(self, what: str) -> str:
        size = self._model.narena
        return (
            f"{what}\n  model {self.spec.model_path}: too many contacts or constraints for its memory of {size} bytes; "
            f'raise <size memory="{max(1, 2 * size // 1024)}K"/> in the file'
        )

    def check(self) -> None:
        """See `Engine`. The overflow is MuJoCo's own warning, counted as it is raised. Also writes the log."""
        overflows = self._log.take_overflows()
        self._log.flush()
        if overflows:
            raise EngineError(self._memory_advice(f"{overflows} physics steps dropped contacts or constraints"))

    def _saved(self) -> Dict[str, Tensor]:
        return {"state": self._state, "control": self._control, **{key: getattr(self, key) for key in _CONTRACT}}

    def state_dict(self) -> Dict[str, Tensor]:
        """See `Engine`."""
        return {key: value.clone() for key, value in self._saved().items()}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """See `Engine`."""
        mine = self._saved()
        if set(state) != set(mine):
            odd = ", ".join(sorted(set(state) ^ set(mine)))
            raise EngineError(f"engine mujoco: the saved state differs in the keys {odd}; it is not from this engine")
        for key, value in state.items():
            if value.shape != mine[key].shape:
                raise EngineError(
                    f"engine mujoco: saved {key} has shape {tuple(value.shape)}, this one {tuple(mine[key].shape)}; "
                    "use the model, num_envs and substeps that it was saved with"
                )
        for key, value in state.items():
            mine[key].copy_(value)

    def close(self) -> None:
        """See `Engine`."""
        if self._pool is not None:
            self._pool.shutdown()
        self._log.flush()
