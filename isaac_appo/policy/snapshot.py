"""A version of the policy as one byte buffer: published, adopted and saved by one copy.

``[version int64 | parameters float32 | published normaliser statistics float32]``, each part aligned. Parameters and
statistics of the model it is bound to are views of it, so there is nothing to gather before a copy and nothing to
scatter after one: a reader sees all of a version or none of it.
"""

from __future__ import annotations

from typing import Dict

import torch
from torch import Tensor

from isaac_appo.policy.actor_critic import ActorCritic

ALIGNMENT = 64
"""Bytes: a cache line, and what vector loads want."""


def _aligned(size: int) -> int:
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


class PolicyBuffer:
    """The byte buffer that ``model``'s parameters and published statistics live in, once bound.

    Attributes:
        bytes: uint8 ``[B]``, everything that a version is.
        version: int64 ``[1]`` view: completed updates whose weights these are (-1 before calibration).
        parameters: float32 ``[P]`` view of all parameters, contiguous, for the optimizer.
    """

    def __init__(self, model: ActorCritic) -> None:
        tensors = model.published_tensors()
        parameter_names = {name for name, _ in model.named_parameters()}
        device = tensors[0][1].device
        parameter_bytes = sum(4 * t.numel() for name, t in tensors if name in parameter_names)
        total = ALIGNMENT + _aligned(parameter_bytes)
        offsets: Dict[str, int] = {}
        cursor = ALIGNMENT
        for name, tensor in tensors:
            if name in parameter_names:
                offsets[name], cursor = cursor, cursor + 4 * tensor.numel()
            else:
                offsets[name], total = total, total + _aligned(4 * tensor.numel())
        self.bytes = torch.zeros(total, dtype=torch.uint8, device=device)
        self.version = self.bytes[:8].view(torch.int64)
        self.parameters = self.bytes[ALIGNMENT : ALIGNMENT + parameter_bytes].view(torch.float32)
        self.version.fill_(-1)
        for name, tensor in tensors:
            self._rebind(tensor, offsets[name])

    def _rebind(self, tensor: Tensor, offset: int) -> None:
        view = self.bytes[offset : offset + 4 * tensor.numel()].view(torch.float32).view(tensor.shape)
        view.copy_(tensor.detach())
        tensor.data = view


class SnapshotRing:
    """Slots that published versions are copied to and adopted from. Which slot, the program decides."""

    def __init__(self, source: PolicyBuffer, slots: int) -> None:
        self.bytes = torch.zeros(slots, source.bytes.numel(), dtype=torch.uint8, device=source.bytes.device)

    def publish(self, source: PolicyBuffer, slot: int) -> None:
        """Copy ``source`` into ``slot``, its version word included."""
        self.bytes[slot].copy_(source.bytes)

    def adopt(self, target: PolicyBuffer, slot: int) -> None:
        """Copy ``slot`` into ``target``."""
        target.bytes.copy_(self.bytes[slot])

    def version(self, slot: int) -> Tensor:
        """The int64 ``[1]`` version word of a slot."""
        return self.bytes[slot, :8].view(torch.int64)
