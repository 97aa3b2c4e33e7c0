"""Training of the asymmetric critic: rl_games' central value network, on the minibatches of the policy."""

from __future__ import annotations

from typing import Any, Dict, NamedTuple

import torch
from torch import Tensor

from isaac_appo.learn.learning_rate import LearningRate, LearningRateSettings
from isaac_appo.learn.loss import LossSettings, Minibatch, masked_mean, value_loss
from isaac_appo.learn.optimizer import FlatAdam
from isaac_appo.policy.central_value import CentralValue


class CriticSettings(NamedTuple):
    """rl_games' ``central_value_config``, as far as it differs from the policy's settings."""

    learning_rate: LearningRateSettings
    e_clip: float
    clip_value: bool
    max_grad_norm: float
    weight_decay: float


class CriticTrainer:
    """The optimizer, learning rate and loss of the critic whose parameters are ``parameters`` ``[P]``."""

    def __init__(self, critic: CentralValue, parameters: Tensor, settings: CriticSettings) -> None:
        s = settings
        self.critic = critic
        self.learning_rate = LearningRate(s.learning_rate, parameters.device)
        self.optimizer = FlatAdam(
            parameters, list(critic.parameters()), self.learning_rate.value, s.weight_decay, s.max_grad_norm
        )
        self.loss = torch.zeros((), device=parameters.device)
        """float32 scalar: sum of the losses since it was last zeroed."""
        self._settings = LossSettings(s.e_clip, s.clip_value, 1.0, 0.0, 0.0, "bound")
        self._scalars = self._settings.scalars(parameters.device)

    def minibatch(self, batch: Minibatch) -> None:
        """One SGD step on the squared error of the values, clipped as the policy's would be."""
        rows = batch.mask_M.sum()
        self.optimizer.zero_grad()
        values = self.critic(batch.states_MS)
        loss = masked_mean(value_loss(values, batch, self._settings, self._scalars), batch.mask_M, rows.clamp(min=1.0))
        loss.backward()
        with torch.no_grad():
            self.optimizer.step(rows)
            self.loss += loss

    def metrics(self, steps: int) -> Dict[str, Tensor]:
        """rl_games' tags."""
        return {"losses/cval_loss": self.loss / steps, "info/cval_lr": self.learning_rate.value}

    def state_dict(self) -> Dict[str, Any]:
        """Weights and optimizer state under rl_games' keys, and the learning rate."""
        return {
            "assymetric_vf_nets": self.critic.saved(),
            "assymetric_vf_optimizer": self.optimizer.state_dict(),
            "central_learning_rate": float(self.learning_rate.value),
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore the optimizer and the learning rate; the weights are the model's to restore."""
        self.optimizer.load_state_dict(state["assymetric_vf_optimizer"])
        self.learning_rate.value.fill_(state["central_learning_rate"])
