"""Learning-rate control on the device: no host reads the KL divergence to decide on a rate.

rl_games' schedules. ``adaptive``: divide or multiply by 1.5 when the rolling KL leaves [0.5, 2] x ``kl_threshold``,
after each minibatch (``legacy``) or each mini-epoch (``standard``). ``linear``: from the initial rate to ``min_lr``
over the run. The rate survives a resume because it is a tensor of the checkpoint, not a value of the config.

On stale rows the KL that counts is the larger of the rolling one and KL(mu || theta) / (lag + 1)^2, mu being the policy
that collected them. The rolling KL sees one update's step; a policy that hears of the effect of a step only ``lag``
updates later can take ``lag + 1`` of them the same way and overshoot, as a control loop with a delay does. KL grows as
the square of the distance, so that the second term is the KL of their mean step: steps that cancel out are left alone.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

FACTOR = 1.5


class LearningRateSettings(NamedTuple):
    """rl_games' names: ``schedule`` is ``lr_schedule``, ``per_minibatch`` is ``schedule_type: legacy``."""

    initial: float
    schedule: str
    per_minibatch: bool
    kl_threshold: float
    min_lr: float
    max_lr: float
    total_updates: int


class LearningRate:
    """A learning rate as a float32 scalar tensor ``value``, which the optimizer reads in place."""

    def __init__(self, settings: LearningRateSettings, device: torch.device) -> None:
        self.settings = settings
        self.value = torch.tensor(settings.initial, dtype=torch.float32, device=device)
        self._epoch_kl = torch.zeros((), device=device)
        self._epoch_minibatches = torch.zeros((), device=device)
        threshold = settings.kl_threshold
        self._lower_kl, self._upper_kl = (torch.tensor(f * threshold, device=device) for f in (0.5, 2.0))

    def after_minibatch(self, kl: Tensor) -> None:
        """Take note of the rolling KL of one minibatch (scalar tensor)."""
        if self.settings.schedule != "adaptive":
            return
        if self.settings.per_minibatch:
            self._adapt(kl)
        else:
            self._epoch_kl += kl
            self._epoch_minibatches += 1

    def after_epoch(self) -> None:
        """End of a mini-epoch: where ``standard`` adapts, to the mean KL of its minibatches."""
        if self.settings.schedule != "adaptive" or self.settings.per_minibatch:
            return
        before = self.value.clone()
        self._adapt(self._epoch_kl / self._epoch_minibatches.clamp(min=1.0))
        self.value.copy_(torch.where(self._epoch_minibatches > 0, self.value, before))
        self._epoch_kl.zero_()
        self._epoch_minibatches.zero_()

    def after_update(self, completed_updates: int) -> None:
        """End of an update: where ``linear`` moves."""
        if self.settings.schedule == "linear":
            s = self.settings
            left = max(0.0, 1.0 - completed_updates / max(1, s.total_updates))
            self.value.fill_(s.min_lr + (s.initial - s.min_lr) * left)

    def _adapt(self, kl: Tensor) -> None:
        s, lr = self.settings, self.value
        lower = torch.clamp(lr / FACTOR, min=s.min_lr)
        raise_ = torch.clamp(lr * FACTOR, max=s.max_lr)
        changed = torch.where(kl > self._upper_kl, lower, torch.where(kl < self._lower_kl, raise_, lr))
        self.value.copy_(changed)
