"""One environment of any engine as MuJoCo data to draw: contract tensors in, poses of all geoms out."""

from __future__ import annotations

import mujoco
import numpy as np
import torch

from isaac_appo.env.task_env import TaskEnv
from isaac_appo.sim.engine import EngineSpec
from isaac_appo.sim.mujoco_model import load_model, map_model


class Scene:
    """The task's MJCF, posed from an env's contract tensors, so that every engine is drawn alike.

    Attributes:
        model, data: MuJoCo's, for drawing only; after `pose` the positions of bodies and geoms in `data` are right.
        root: index of the first free body, which a camera follows; -1 where the robot is bolted down.

    Errors: EngineError for a model that does not load.
    """

    def __init__(self, env: TaskEnv) -> None:
        self.env = env
        engine, task = env.engine, env.task
        spec = EngineSpec(task.model_file, 1, "cpu", engine.control_dt, engine.spec.substeps, task.sites)
        self.model = load_model(spec)
        self.data = mujoco.MjData(self.model)
        found = map_model(self.model, spec)
        # offsets count from the time that starts a state row
        self._root_q, self._dof_q = found.offsets["root_q"] - 1, found.offsets["dof_q"] - 1
        free = np.flatnonzero(self.model.jnt_type == mujoco.mjtJoint.mjJNT_FREE.value)
        self.root = int(self.model.jnt_bodyid[free[0]]) if free.size else -1

    @property
    def dt(self) -> float:
        """s between two env steps."""
        return self.env.engine.control_dt

    def pose(self, index: int) -> None:
        """Take the pose of environment `index`."""
        engine, qpos = self.env.engine, self.data.qpos
        for a, at in enumerate(self._root_q):
            qpos[at : at + 3] = _row(engine.root_pos, index)[a]
            qpos[at + 3 : at + 7] = _row(engine.root_quat, index)[a][[3, 0, 1, 2]]
        qpos[self._dof_q] = _row(engine.dof_pos, index)
        mujoco.mj_kinematics(self.model, self.data)
        mujoco.mj_comPos(self.model, self.data)
        mujoco.mj_camlight(self.model, self.data)


def _row(tensor: torch.Tensor, index: int) -> np.ndarray:
    row: np.ndarray = tensor[index].cpu().numpy()
    return row
