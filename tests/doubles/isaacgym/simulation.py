"""What the double simulates: N rows of MuJoCo behind tensors, and the rules of who may touch them when."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Dict, List

import mujoco
import numpy as np


class Double:
    """What a test may set, and what the process has made."""

    sims = 0
    reverse_dofs = False
    viewer_closes_after = 10**9

    @classmethod
    def reset(cls) -> None:
        """As in a fresh process."""
        cls.sims, cls.reverse_dofs, cls.viewer_closes_after = 0, False, 10**9


class Sim:
    """N rows of MuJoCo and the tensors that show them."""

    def __init__(self, compute: int, graphics: int, params: Any) -> None:
        self.compute, self.graphics, self.params = compute, graphics, params
        self.ground, self.prepared, self.fetched, self.closed = False, False, True, False
        self.assets: List[Any] = []
        self.poses: List[List[float]] = []
        self.groups: List[int] = []
        self.data: List[Any] = []
        self.tensors: Dict[str, Any] = {}
        self.setters: Dict[str, Any] = {}
        self.efforts: Any = None

    def prepare(self) -> None:
        model = self.assets[0].model
        model.opt.timestep = self.params.dt / self.params.substeps
        model.opt.disableflags |= getattr(mujoco.mjtDisableBit, "mjDSBL_AUTORESET", SimpleNamespace(value=0)).value
        self.data = [mujoco.MjData(model) for _ in self.assets]
        for pose, data in zip(self.poses, self.data):
            if self.assets[0].free:
                data.qpos[:7] = [*pose[:3], pose[6], *pose[3:6]]
            mujoco.mj_forward(model, data)
        self.prepared = True
        self.publish()

    def publish(self) -> None:
        """What a refresh copies into the tensors: the state after the last step."""
        asset, n = self.assets[0], len(self.data)
        model, qpos, qvel = asset.model, np.stack([d.qpos for d in self.data]), np.stack([d.qvel for d in self.data])
        root = np.zeros((n, 13))
        root[:, :7] = self.poses
        if asset.free:
            root[:, :3], root[:, 3:7], root[:, 7:10] = qpos[:, :3], qpos[:, [4, 5, 6, 3]], qvel[:, :3]
            for row, q, v in zip(root, qpos, qvel):
                mujoco.mju_rotVecQuat(row[10:13], v[3:6], q[3:7])
        dof = np.stack([qpos[:, model.jnt_qposadr[asset.dofs]], qvel[:, model.jnt_dofadr[asset.dofs]]], axis=-1)
        at = [i for pair in asset.sensors for start in pair for i in range(start, start + 3)]
        wrench = np.stack([d.sensordata[at] for d in self.data])
        self.latest = {"root": root, "dof": dof.reshape(-1, 2), "sensor": wrench.reshape(-1, 6)}

    def acquire(self, name: str) -> Any:
        import torch

        from isaacgym import gymapi

        if not self.prepared:
            raise RuntimeError(f"acquire of the {name} tensor before prepare_sim")
        device = f"cuda:{self.compute}" if self.params.use_gpu_pipeline else "cpu"
        if name not in self.tensors:
            found = gymapi.Tensor()
            found.owned = torch.zeros(self.latest[name].shape, dtype=torch.float32, device=device)
            found.shape, found.own_data = tuple(found.owned.shape), True
            self.tensors[name] = found
        return self.tensors[name]

    def refresh(self, name: str) -> bool:
        import torch

        if name not in self.tensors:
            raise RuntimeError(f"refresh of the {name} tensor before it was acquired")
        if self.fetched or self.params.use_gpu_pipeline:
            self.tensors[name].owned.copy_(torch.as_tensor(self.latest[name], dtype=torch.float32))
        return True

    def take(self, name: str, tensor: Any, dtype: str, size: int) -> None:
        """Check a tensor that was handed to a setter."""
        on_gpu = tensor.owned.device.type != "cpu" if tensor.owned is not None else tensor.device >= 0
        if on_gpu != self.params.use_gpu_pipeline:
            place, pipeline = ("GPU", "CPU") if on_gpu else ("CPU", "GPU")
            raise RuntimeError(f"{name}: a {place} tensor on the {pipeline} pipeline")
        if tensor.owned is None and tensor.dtype != f"torch.{dtype}":
            raise RuntimeError(f"{name}: a tensor of {tensor.dtype}, which must be {dtype}")
        if int(np.prod(tensor.shape)) != size:
            raise RuntimeError(f"{name}: a tensor of shape {tensor.shape}, which must hold {size} values")

    def set(self, name: str, tensor: Any, indices: Any = None, count: int = 0) -> bool:
        """Keep what a setter was given, as pointers, until the next step."""
        if not self.prepared:
            raise RuntimeError(f"setter of the {name} tensor before prepare_sim")
        if name in self.setters:
            raise RuntimeError(f"a second call for the {name} tensor in one step")
        n = len(self.data)
        size = {"root": n * 13, "dof": n * len(self.assets[0].dofs) * 2, "effort": n * len(self.assets[0].dofs)}[name]
        self.take(name, tensor, "float32", size)
        if indices is not None:
            self.take(f"{name} indices", indices, "int32", count)
        self.setters[name] = (tensor, indices)
        return True

    def apply(self) -> None:
        """Read the setters' tensors, now, and make them MuJoCo's state and forces."""
        from isaacgym import gymtorch

        rows = {}
        for name, given in self.setters.items():
            for tensor in given:
                if tensor is not None and not gymtorch.alive(tensor):
                    raise RuntimeError(f"a tensor given to the {name} setter was freed before the step that reads it")
            values = gymtorch.view(given[0]).cpu().numpy().reshape(len(self.data), -1).astype(np.float64)
            chosen = range(len(self.data)) if given[1] is None else gymtorch.view(given[1]).cpu().tolist()
            rows[name] = {n: values[n] for n in chosen}
        self.setters.clear()
        asset, model = self.assets[0], self.assets[0].model
        for n, row in rows.get("root", {}).items():
            data, world, body = self.data[n], row[10:13], np.zeros(3)
            data.qpos[:7] = [*row[:3], row[6], *row[3:6]]
            data.qvel[:3] = row[7:10]
            conjugate = data.qpos[3:7] * [1, -1, -1, -1]
            mujoco.mju_rotVecQuat(body, world, conjugate / max(np.linalg.norm(conjugate), 1e-30))
            data.qvel[3:6] = body
        for n, row in rows.get("dof", {}).items():
            pairs = row.reshape(-1, 2)
            self.data[n].qpos[model.jnt_qposadr[asset.dofs]] = pairs[:, 0]
            self.data[n].qvel[model.jnt_dofadr[asset.dofs]] = pairs[:, 1]
        for n, row in rows.get("effort", {}).items():
            self.data[n].qfrc_applied[model.jnt_dofadr[asset.dofs]] = row
