"""Engine `mujoco`: MuJoCo C on the CPU, rows split over our own threads, for MuJoCo 3.2.3 and all later versions.

Each control step is one `mujoco.rollout` per thread, on that thread's own MjData. The warm start is zero at the start
of every control step, so a row's state alone determines its future, whatever thread or neighbour it has.
"""

from __future__ import annotations

import inspect
from concurrent.futures import ThreadPoolExecutor
from typing import Callable, List, NamedTuple, Optional, Sequence

import mujoco
import numpy as np
import torch
from mujoco import rollout as mujoco_rollout
from torch import Tensor

from isaac_appo.sim.engine import EngineError, EngineSpec
from isaac_appo.sim.mujoco_log import MujocoLog
from isaac_appo.sim.mujoco_model import load_model, map_model
from isaac_appo.sim.mujoco_rows import MujocoRows

__all__ = ["MujocoEngine"]


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


class MujocoEngine(MujocoRows):
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
        if torch.device(spec.device).type != "cpu":
            raise EngineError(f"engine mujoco simulates on the CPU, not on {spec.device!r}: set sim_device=cpu")
        self._log = MujocoLog(spec.log_dir)
        with self._log.attached():
            self._model = load_model(spec)
        self._allocate(self._model, map_model(self._model, spec), spec.substeps, torch.float64)
        self._warmstart = torch.zeros(self.num_envs, self._model.nv, dtype=torch.float64)
        self._roll = _roll_function()
        self._parts = self._split(min(spec.threads, spec.num_envs))
        self._pool = ThreadPoolExecutor(len(self._parts), "mujoco") if len(self._parts) > 1 else None
        self.reset(torch.ones(self.num_envs, dtype=torch.bool))

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
        self._write_control()

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
        self._pull()

    def _memory_advice(self, what: str) -> str:
        size = self._model.narena
        return (
            f"{what}\n  model {self.spec.model_path}: too many contacts or constraints for its memory of {size} bytes; "
            f'raise <size memory="{max(1, 2 * size // 1024)}K"/> in the file'
        )

    def check(self, faults: Optional[Sequence[int]] = None) -> None:
        """See `Engine`. The overflow is MuJoCo's own warning, counted as it is raised. Also writes the log."""
        overflows = self._log.take_overflows()
        self._log.flush()
        if overflows:
            raise EngineError(self._memory_advice(f"{overflows} physics steps dropped contacts or constraints"))

    def close(self) -> None:
        """See `Engine`."""
        if self._pool is not None:
            self._pool.shutdown()
        self._log.flush()
