"""What both MuJoCo engines share: rows `[time, qpos, qvel]` of their own float type beside the contract tensors."""

from __future__ import annotations

from typing import Any, Dict

import mujoco
import torch
from torch import Tensor

from isaac_appo.kernels import wp
from isaac_appo.sim.engine import Engine, EngineError
from isaac_appo.sim.mujoco_kernels import FLOAT32, FLOAT64
from isaac_appo.sim.mujoco_model import ModelMap

__all__ = ["MujocoRows"]

CONTRACT = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench", "invalid")


class MujocoRows(Engine):
    """See `Engine`. A subclass sets `spec` and calls `_allocate`, before anything else here is used.

    Shapes: Q = 1 + nq + nv values in a row, K steps that are kept of a control step, U motors, R sensor values. State
    [N, Q], rollout [N, K, Q], control [N, K, U], sensors [N, K, R], all of one float type; torch and Warp share them.
    """

    def _allocate(self, model: mujoco.MjModel, mapped: ModelMap, steps: int, real: torch.dtype) -> None:
        spec = self.spec
        self.num_envs, self.control_dt, self.dof_names = spec.num_envs, spec.control_dt, mapped.dof_names
        self.device = torch.device(spec.device)
        self._kernels = FLOAT64 if real == torch.float64 else FLOAT32
        n, device = self.num_envs, self.device
        row = torch.as_tensor(mapped.initial_state, dtype=real, device=device)
        self._initial = row.clone()
        self._state = row.repeat(n, 1)
        self._rollout = torch.zeros(n, steps, row.numel(), dtype=real, device=device)
        self._control = torch.zeros(n, steps, model.nu, dtype=real, device=device)
        self._sensors = torch.zeros(n, steps, model.nsensordata, dtype=real, device=device)
        self._motor_scale = torch.as_tensor(mapped.motor_scale, dtype=real, device=device)
        self._index = {key: torch.as_tensor(value, device=device) for key, value in mapped.offsets.items()}
        self._allocate_contract(mapped)
        self._efforts = torch.zeros(n, len(self.dof_names), device=device)
        self._mask = torch.zeros(n, dtype=torch.bool, device=device)
        private = ("initial", "state", "rollout", "control", "sensors", "motor_scale", "efforts", "mask")
        self._wp = {key: wp.from_torch(getattr(self, key)) for key in CONTRACT}
        self._wp.update({key: wp.from_torch(getattr(self, "_" + key)) for key in private})
        self._wp.update({key: wp.from_torch(value) for key, value in self._index.items()})

    def _allocate_contract(self, mapped: ModelMap) -> None:
        n, a, d, s = self.num_envs, mapped.num_roots, len(self.dof_names), len(self.spec.sites)
        device, start = self.device, torch.as_tensor(mapped.initial_state, dtype=torch.float32)
        at = torch.as_tensor(mapped.offsets["root_q"], dtype=torch.int64).view(a, 1)
        self.initial_root_pos = start[at + torch.arange(3)].to(device)
        self.initial_root_quat = start[at + torch.tensor([4, 5, 6, 3])].to(device)
        self.initial_dof_pos = start[torch.as_tensor(mapped.offsets["dof_q"], dtype=torch.int64)].to(device)
        self.dof_lower, self.dof_upper, self.effort_limit = (
            torch.as_tensor(x, dtype=torch.float32, device=device)
            for x in (mapped.dof_lower, mapped.dof_upper, mapped.effort_limit)
        )
        self.root_pos = self.initial_root_pos.repeat(n, 1, 1)
        self.root_quat = self.initial_root_quat.repeat(n, 1, 1)
        self.root_lin_vel = torch.zeros(n, a, 3, device=device)
        self.root_ang_vel = torch.zeros(n, a, 3, device=device)
        self.dof_pos = self.initial_dof_pos.repeat(n, 1)
        self.dof_vel = torch.zeros(n, d, device=device)
        self.site_wrench = torch.zeros(n, s, 6, device=device)
        self.invalid = torch.zeros(n, dtype=torch.bool, device=device)

    def _stream(self) -> Any:
        """The Warp stream to launch on; None means Warp's own."""
        return None

    def _launch(self, kernel: wp.Kernel, dim: Any, inputs: str, outputs: str, *first: Any, stream: Any = None) -> None:
        """Launch on this engine's arrays, named in words; `first` are scalars that come before them."""
        arrays = [[self._wp[name] for name in names.split()] for names in (inputs, outputs)]
        wp.launch(kernel, dim, [*first, *arrays[0]], arrays[1], device=str(self.device), stream=stream)

    def _write_control(self) -> None:
        """Efforts to controls, in every step that is kept."""
        self._launch(self._kernels.write_control, self._efforts.shape, "efforts motor motor_scale", "control")

    def _pull(self) -> None:
        """The last step that is kept becomes the state, the contract tensors and `invalid`."""
        inputs = "initial rollout sensors root_q root_v dof_q dof_v site_force site_torque"
        outputs = "state " + " ".join(CONTRACT)
        self._launch(self._kernels.pull_state, self.num_envs, inputs, outputs, self.control_dt)

    def reset(self, mask: Tensor) -> None:
        """See `Engine`."""
        self._mask.copy_(mask)
        inputs = f"mask initial {' '.join(CONTRACT[:6])} root_q root_v dof_q dof_v"
        outputs = "state site_wrench invalid"
        self._launch(self._kernels.push_state, self.num_envs, inputs, outputs, stream=self._stream())

    def _saved(self) -> Dict[str, Tensor]:
        return {"state": self._state, "control": self._control, **{key: getattr(self, key) for key in CONTRACT}}

    def state_dict(self) -> Dict[str, Tensor]:
        """See `Engine`."""
        return {key: value.clone() for key, value in self._saved().items()}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """See `Engine`."""
        mine = self._saved()
        if set(state) != set(mine):
            odd = ", ".join(sorted(set(state) ^ set(mine)))
            raise EngineError(
                f"engine {self.name}: the saved state differs in the keys {odd}; it is not from this engine"
            )
        for key, value in state.items():
            if value.shape != mine[key].shape:
                raise EngineError(
                    f"engine {self.name}: saved {key} has shape {tuple(value.shape)}, this one "
                    f"{tuple(mine[key].shape)}; use the model, num_envs and substeps that it was saved with"
                )
        for key, value in state.items():
            mine[key].copy_(value)
