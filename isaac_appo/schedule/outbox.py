"""Host numbers of an update that arrive later, so that the host need not wait for work that it has just enqueued.

The learner's stream gathers them on the device, the copy stream takes them to pinned memory, and the host reads them
two updates later. A slot of the ring is written again only after the host has read it.
"""

from __future__ import annotations

from typing import List, Optional, Sequence

import torch
from torch import Tensor

from isaac_appo.schedule.executors.device import Device, Event, Stream
from isaac_appo.schedule.pipeline import REPORTED_BEHIND

BEHIND = REPORTED_BEHIND
"""Updates that the host reads behind what it has enqueued: all that it may run ahead."""


class Outbox:
    """A ring of ``BEHIND + 1`` slots of the tensors that ``sample`` is like."""

    def __init__(self, device: Device, sample: Sequence[Tensor]) -> None:
        slots = range(BEHIND + 1)
        self._gathered = [[torch.zeros_like(t) for t in sample] for _ in slots]
        self._arrived = [[device.pinned(t) for t in sample] for _ in slots]
        self._events: List[Optional[Event]] = [None for _ in slots]

    def gather(self, update: int, tensors: Sequence[Tensor]) -> None:
        """Work of the learner's stream: copy the tensors as they are now."""
        for slot, tensor in zip(self._gathered[update % len(self._gathered)], tensors):
            slot.copy_(tensor)

    def send(self, update: int, learner: Stream, copier: Stream) -> None:
        """Enqueue the copy to the host of what ``learner`` has gathered so far."""
        slot = update % len(self._gathered)
        gathered, arrived = self._gathered[slot], self._arrived[slot]
        copier.wait(learner.record())
        copier.run(lambda: _copy(gathered, arrived))
        self._events[slot] = copier.record()

    def read(self, update: int) -> List[Tensor]:
        """What was sent, in host memory; waits for it."""
        slot = update % len(self._gathered)
        event = self._events[slot]
        assert event is not None
        event.block()
        return self._arrived[slot]


def _copy(sources: Sequence[Tensor], targets: Sequence[Tensor]) -> None:
    for source, target in zip(sources, targets):
        target.copy_(source, non_blocking=True)
