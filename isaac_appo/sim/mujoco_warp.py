"""Engine `mujoco_warp`: MuJoCo Warp on an NVIDIA GPU, the same model files and rows as engine `mujoco`.

A control step, conversions included, is one graph that is captured when the engine is built and replayed on PyTorch's
current stream. Warp captures graphs on its CPU device too, so the tests run what a GPU runs.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import mujoco
import mujoco_warp
import numpy as np
import torch
from torch import Tensor

from isaac_appo.kernels import warp_stream, wp
from isaac_appo.sim.engine import EngineError, EngineSpec
from isaac_appo.sim.mujoco_model import load_model, map_model
from isaac_appo.sim.mujoco_rows import CONTRACT, MujocoRows
from isaac_appo.sim.mujoco_warp_kernels import load_rows, store_rows

__all__ = ["MujocoWarpEngine", "capacities"]

MOST_CONTACTS = 128
"""Contacts per row beyond which room for every contact that a model could ever make is not reserved by default."""
_CONTACTS_OF = {mujoco.mjtGeom.mjGEOM_SPHERE.value: 1, mujoco.mjtGeom.mjGEOM_CAPSULE.value: 2}
_CONTACTS_OF_OTHERS = 8
_Overflow = mujoco_warp.OverflowType
_OVERFLOWS = (
    (_Overflow.BROADPHASE | _Overflow.NARROWPHASE | _Overflow.CCD, "contacts", "nconmax"),
    (_Overflow.NEFC | _Overflow.NJMAX_NNZ, "constraints", "njmax"),
)

_one_replay = threading.Lock()
"""Two CPU graphs that Warp 1.19 replays at once, on two threads, end the process."""

_INERTIAL = ("body_mass", "body_inertia", "dof_armature")
_DERIVED = ("body_subtreemass", "body_invweight0", "dof_invweight0", "actuator_acc0")
_FIELDS = (*_INERTIAL, "actuator_gainprm", "dof_damping", "geom_friction", "jnt_stiffness")


def capacities(model: mujoco.MjModel, pairs: np.ndarray, spec: EngineSpec) -> Tuple[int, int]:
    """Contacts and constraints per row to make room for: options `nconmax` and `njmax`, or what the model can make.

    A pair of geoms makes 1 contact with a sphere in it, else 2 with a capsule, else 8; at most MOST_CONTACTS are
    counted. A contact takes 2 * (condim - 1) constraints in a pyramidal cone (1 if frictionless), condim in an
    elliptic one; a limit, a dry friction and a scalar equality take 1, any other equality up to 6.

    Args:
        pairs: [P, 2] geoms that may collide.
    """
    each = np.array([_CONTACTS_OF.get(int(kind), _CONTACTS_OF_OTHERS) for kind in model.geom_type], int)
    contacts = spec.options.get("nconmax", 0) or min(
        MOST_CONTACTS, int(np.minimum(each[pairs[:, 0]], each[pairs[:, 1]]).sum())
    )
    condim = int(max(model.geom_condim.max(initial=1), model.pair_dim.max(initial=1)))
    pyramidal = model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL.value
    rows = max(1, 2 * (condim - 1)) if pyramidal else condim
    lasting = 6 * model.neq + int(model.jnt_limited.sum() + model.tendon_limited.sum())
    lasting += int((model.dof_frictionloss > 0).sum() + (model.tendon_frictionloss > 0).sum())
    return max(1, contacts), spec.options.get("njmax", 0) or max(1, lasting + rows * contacts)


class MujocoWarpEngine(MujocoRows):
    """See `Engine`. What is MuJoCo Warp's own:

    Physics is float32. `site_wrench` means what it means in engine `mujoco`: sensors at the start of the last substep.
    A row is invalid when a coordinate, an effort or a sensor is not finite (or above 1e10). One step from the same
    state is that of engine `mujoco` to rounding, but for capsules that lean less than 30 degrees from the normal of a
    plane: there MuJoCo Warp turns the friction pyramid.

    Contacts of all rows share `num_envs * nconmax` places and each row has `njmax` constraints (see `capacities`);
    what finds no place is dropped, which is counted and which `check` refuses.

    On a GPU the order of sums varies, so the last bits of a step do; on Warp's CPU device they do not. All launches go
    to PyTorch's current stream. Within a graph capture of PyTorch's, `step` records itself into that graph.

    Errors: EngineError for a model that MuJoCo Warp does not support, and for a device that Warp does not see.
    """

    name = "mujoco_warp"
    fault_names = ("physics/contact_overflow", "physics/constraint_overflow")

    def __init__(self, spec: EngineSpec) -> None:
        self.spec = spec
        device = torch.device(spec.device)
        self.host_synchronous = device.type == "cpu"
        self.capturable = False  # a step replays a graph of its own
        self._outer: List[Any] = []  # what Warp recorded into graphs of PyTorch's: its memory must live as long
        self._check_device(device)
        model = load_model(spec)
        model.opt.disableflags &= ~mujoco.mjtDisableBit.mjDSBL_AUTORESET.value  # unknown to MuJoCo Warp, which has none
        self._allocate(model, map_model(model, spec), 1, torch.float32)
        with wp.ScopedDevice(spec.device):
            self._put(model)
        self._batched: Dict[str, Tensor] = {}
        self._derive: Any = None
        self._graph = self._build(self._advance)

    @staticmethod
    def _check_device(device: torch.device) -> None:
        if device.type == "cpu":
            return
        if device.type != "cuda" or not torch.cuda.is_available() or not wp.is_cuda_available():
            raise EngineError(f"engine mujoco_warp: no device {str(device)!r} for PyTorch and Warp; set sim=mujoco")
        if not wp.is_mempool_enabled(str(device)):
            raise EngineError(
                f"engine mujoco_warp: Warp's memory pool is off on {device}, and without it a step cannot be captured "
                "as a graph; use a driver that has it (CUDA 11.5 or later), and leave WARP_ENABLE_MEMPOOLS_AT_INIT on"
            )

    def _put(self, model: mujoco.MjModel) -> None:
        """Model and data on Warp's current device; controls and sensor values lie in our own arrays."""
        try:
            self._model = mujoco_warp.put_model(model)
        except (NotImplementedError, ValueError) as error:
            raise EngineError(
                f"model {self.spec.model_path!r}: MuJoCo Warp refuses it: {error}; change it, or set sim=mujoco"
            ) from error
        self._model.opt.warn_overflow = 0  # kernels would print; `check` tells
        self._model.opt.graph_conditional = self.device.type == "cpu" or wp.is_conditional_graph_supported()
        pairs = self._model.nxn_geom_pair_filtered.numpy()[self._model.nxn_pairid_filtered.numpy()[:, 0] > -2]
        if model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_CONTACT.value:
            pairs = pairs[:0]
        self.nconmax, self.njmax = capacities(model, pairs, self.spec)
        self._data = mujoco_warp.make_data(model, nworld=self.num_envs, nconmax=self.nconmax, njmax=self.njmax)
        self._data.ctrl = wp.from_torch(self._control[:, 0])
        self._data.sensordata = wp.from_torch(self._sensors[:, 0])
        self._overflow = wp.to_torch(self._data.overflow)
        d = self._data
        self._wp.update(time=d.time, qpos=d.qpos, qvel=d.qvel, warmstart=d.qacc_warmstart)

    def _advance(self) -> None:
        """One control step, launched on Warp's current device and stream."""
        self._write_control()
        self._launch(load_rows, self.num_envs, "initial state control", "time qpos qvel warmstart")
        for _ in range(self.spec.substeps):
            mujoco_warp.step(self._model, self._data)
        self._launch(store_rows, self.num_envs, "time qpos qvel", "rollout")
        self._pull()

    def _build(self, work: Callable[[], None]) -> Any:
        """Do the work once, so that everything is compiled and loaded, and capture it as a graph; the state stays."""
        state, stream = self.state_dict(), None
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # a graph is captured on a stream of its own: PyTorch's may be NULL
            stream = wp.Stream(str(self.device))
        with wp.ScopedDevice(str(self.device)), wp.ScopedStream(stream, sync_enter=False):
            work()
        graph = self._capture(work, stream)
        if stream is not None:
            wp.synchronize_stream(stream)
        self.load_state_dict(state)
        self._overflow.zero_()
        return graph

    def _capture(self, work: Callable[[], None], stream: Any, external: bool = False) -> Any:
        """The work as a graph; external: `stream` is being captured already, by PyTorch."""
        device, current = wp.ScopedDevice(str(self.device)), wp.ScopedStream(stream, sync_enter=False)
        with device, current, wp.ScopedCapture(stream=stream, external=external) as capture:
            work()
        return capture.graph

    def _stream(self) -> Any:
        """PyTorch's current stream as Warp's. None on the CPU."""
        return None if self.device.type == "cpu" else warp_stream(torch.cuda.current_stream(self.device))

    def apply_efforts(self, efforts: Tensor) -> None:
        """See `Engine`. MuJoCo clamps to `effort_limit`; an effort on a dof without a motor is void."""
        self._efforts.copy_(efforts)

    def step(self) -> None:
        """See `Engine`. Never waits for a GPU."""
        stream = self._stream()
        if stream is None:
            with _one_replay:
                wp.capture_launch(self._graph)
        elif not torch.cuda.is_current_stream_capturing():
            wp.capture_launch(self._graph, stream)
        else:  # the solver's loop is a conditional node, which no child graph may hold: record the launches themselves
            self._outer.append(self._capture(self._advance, stream, external=True))

    def count_faults(self) -> Tensor:
        """See `Engine`: rows that have dropped contacts, and rows that have dropped constraints."""
        return torch.stack([(self._overflow & int(bits)).ne(0).sum() for bits, _, _ in _OVERFLOWS])

    def check(self, faults: Optional[Sequence[int]] = None) -> None:
        """See `Engine`. What it finds itself, it forgets."""
        if faults is None:
            faults = self.count_faults().tolist()
            self._overflow.zero_()
        for rows, (_, what, setting) in zip(faults, _OVERFLOWS):
            if rows:
                size = getattr(self, setting)
                raise EngineError(
                    f"{rows} of {self.num_envs} rows dropped {what}: sim.{setting}={size} for a "
                    f"row is too few for model {self.spec.model_path}; raise it, to sim.{setting}={2 * size}"
                )

    def _saved(self) -> Dict[str, Tensor]:
        return {"state": self._state, "efforts": self._efforts, **{key: getattr(self, key) for key in CONTRACT}}

    def capabilities(self) -> Tuple[str, ...]:
        """See `Engine`: fields of MuJoCo's model, per row [N, …] in its shapes and units."""
        return _FIELDS

    def set_model_field(self, name: str, mask: Tensor, values: Tensor) -> None:
        """See `Engine`. values [N, …]. What MuJoCo derives from masses follows. Not part of `state_dict`.

        The first call for a field captures the step anew and must not run beside another stream's launches.
        """
        if name not in _FIELDS:
            super().set_model_field(name, mask, values)
        inertial = name in _INERTIAL
        if name not in self._batched:
            self._batch((name, *(_DERIVED if inertial else ())))
        field = self._batched[name]
        if values.shape != field.shape:
            raise EngineError(f"{name}: values have shape {tuple(values.shape)}, the field {tuple(field.shape)}")
        torch.where(mask.view(-1, *[1] * (field.dim() - 1)), values, field, out=field)
        if inertial:
            wp.capture_launch(self._derive, self._stream())

    def _batch(self, names: Tuple[str, ...]) -> None:
        """Give every row its own copy of model fields, and capture anew what reads them."""
        for name in set(names) - set(self._batched):
            shared = getattr(self._model, name)
            row = wp.to_torch(shared)[0]
            self._batched[name] = row.repeat(self.num_envs, *[1] * row.dim())
            setattr(self._model, name, wp.from_torch(self._batched[name], dtype=shared.dtype))
        self._graph = self._build(self._advance)
        if len(names) > 1:
            group = mujoco_warp.SetConstGroup
            self._derive = self._build(
                lambda: mujoco_warp.set_const(self._model, self._data, group.FIXED | group.INERT0, restore=False)
            )

    def close(self) -> None:
        """See `Engine`."""
