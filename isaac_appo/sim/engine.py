"""The contract that every physics engine fulfils: N copies of one model, on persistent float32 tensors."""

from __future__ import annotations

import abc
from dataclasses import dataclass, field
from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from isaac_appo.errors import UserError

__all__ = ["Engine", "EngineError", "EngineSpec"]


class EngineError(UserError):
    """A model, a setting or a simulation that the engine cannot go on with; the text says what to change."""


@dataclass(frozen=True)
class EngineSpec:
    """What a task asks an engine for.

    Attributes:
        model_path: MJCF file.
        num_envs: N, copies of the model.
        device: torch device of the contract tensors.
        control_dt: s, simulated time of one `Engine.step`.
        substeps: physics steps per `Engine.step`; the physics time step is control_dt / substeps.
        sites: names of the sites whose wrench the task reads, in the order of `Engine.site_wrench`.
        threads: CPU threads that step the rows.
        log_dir: folder for the engine's own log; nothing is written when empty.
        options: what one engine alone understands; see that engine.
    """

    model_path: str
    num_envs: int
    device: str
    control_dt: float
    substeps: int
    sites: Tuple[str, ...] = ()
    threads: int = 1
    log_dir: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raise EngineError for a number that no simulation can have."""
        for name in ("num_envs", "substeps", "threads"):
            if getattr(self, name) < 1:
                raise EngineError(f"{name}={getattr(self, name)} must be at least 1")
        if not 0.0 < self.control_dt < float("inf"):
            raise EngineError(f"control_dt={self.control_dt} s must be positive and finite; the usual value is 0.0166")


class Engine(abc.ABC):
    """N copies of one model. Every tensor keeps its data_ptr for the life of the engine.

    Shapes: N envs, A free-floating roots (0 for a fixed base), D other joints ("dofs"), S sites. Float32 throughout.

    Attributes:
        exclusive: whether a process can have one engine of this class in its life, and no second.
        host_synchronous: whether `step` makes the host wait.
        capturable: of one that does not, whether its calls are kernels alone, so that they may become part of a CUDA
            graph. An engine that launches a graph of its own is not.
        fault_names: metrics of the counts that `count_faults` gives.
        root_pos: [N, A, 3] m, origin of the root body's frame in the world.
        root_quat: [N, A, 4] xyzw, unit, body to world.
        root_lin_vel: [N, A, 3] m/s, of the frame's origin, world axes.
        root_ang_vel: [N, A, 3] rad/s, world axes.
        dof_pos: [N, D] rad (m for slides), in the order of `dof_names`.
        dof_vel: [N, D] rad/s (m/s).
        site_wrench: [N, S, 6] force N then torque N·m, site axes, of the last substep; zero after a reset.
        invalid: [N] bool, rows whose physics broke in the last `step()`. They are parked in the initial state.
        dof_lower: [D] joint limits, -inf where unlimited. dof_upper likewise.
        effort_limit: [D] N·m (N), the most that a dof's motor gives; 0 where the dof has none, inf where unlimited.
        initial_root_pos: [A, 3] m. initial_root_quat: [A, 4] xyzw.
        initial_dof_pos: [D], the model's reference position, moved inside the joint limits.
    """

    name: str
    host_synchronous: bool
    exclusive: bool = False
    capturable: bool = True
    fault_names: Tuple[str, ...] = ()
    spec: EngineSpec
    num_envs: int
    device: torch.device
    control_dt: float
    dof_names: Tuple[str, ...]
    root_pos: Tensor
    root_quat: Tensor
    root_lin_vel: Tensor
    root_ang_vel: Tensor
    dof_pos: Tensor
    dof_vel: Tensor
    site_wrench: Tensor
    invalid: Tensor
    dof_lower: Tensor
    dof_upper: Tensor
    effort_limit: Tensor
    initial_root_pos: Tensor
    initial_root_quat: Tensor
    initial_dof_pos: Tensor

    @abc.abstractmethod
    def __init__(self, spec: EngineSpec) -> None:
        """Build N copies in their initial state. Errors: EngineError."""

    @abc.abstractmethod
    def apply_efforts(self, efforts: Tensor) -> None:
        """Set the effort [N, D] in N·m (N) that every dof gets in the steps to come; copied at once."""

    @abc.abstractmethod
    def step(self) -> None:
        """Advance every row by `control_dt` and refresh the contract tensors. Errors: EngineError."""

    @abc.abstractmethod
    def reset(self, mask: Tensor) -> None:
        """Make the root_* and dof_* rows under mask [N] bool the engine's state.

        Their clock, warm start, `site_wrench` and `invalid` become zero; no other row changes by a bit.
        """

    def count_faults(self) -> Optional[Tensor]:
        """Counts [2] int64 so far, by `fault_names`, on the device and without waiting for it.

        None where nothing is counted on the device.
        """
        return None

    @abc.abstractmethod
    def check(self, faults: Optional[Sequence[int]] = None) -> None:
        """Raise EngineError if contacts or constraints were dropped: once per update, with what `count_faults` gave,
        or with None: since the last call with None, waiting for the device."""

    @abc.abstractmethod
    def state_dict(self) -> Dict[str, Tensor]:
        """Copies of everything that the future depends on."""

    @abc.abstractmethod
    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """Return to a saved state, bit for bit. Errors: EngineError for a state of another shape."""

    def capabilities(self) -> Tuple[str, ...]:
        """Names of the model fields that `set_model_field` accepts."""
        return ()

    def set_model_field(self, name: str, mask: Tensor, values: Tensor) -> None:
        """Give the rows under mask [N] bool their own value of a model field. Errors: EngineError if not offered."""
        offered = ", ".join(self.capabilities()) or "none"
        raise EngineError(f"engine {self.name} cannot set the model field {name!r}; fields it can set: {offered}")

    @abc.abstractmethod
    def close(self) -> None:
        """End the engine's threads and write its log; a second call does nothing."""
