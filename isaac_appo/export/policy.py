"""The whole policy as one module: what the env and the trainer do to observations and actions is inside."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.normalizer import CLIP, RunningNormalizer

_LARGEST = 3.4028234663852886e38  # float32: a clamp that does nothing, so that the graph has one form


class ExportedPolicy(nn.Module):
    """Raw observations ``[B, O]`` to the actions ``[B, M]`` that the env applies, deterministic.

    In this order: clamp of the observations, normaliser, network, clamp of the means to ±1 (`clip_actions`), clamp to
    the env's own bound.
    """

    mean: Tensor
    inv_std: Tensor

    def __init__(self, model: ActorCritic, clip_obs: float, clip_actions: bool, clip_env: float) -> None:
        super().__init__()
        self.network = model.a2c_network
        self.clip_obs = min(clip_obs, _LARGEST)
        self.bound = min(clip_env, 1.0 if clip_actions else _LARGEST)
        mean, inv_std, self.limit = torch.zeros(model.num_obs), torch.ones(model.num_obs), _LARGEST
        if isinstance(model.running_mean_std, RunningNormalizer):
            mean, inv_std, self.limit = model.running_mean_std.mean, model.running_mean_std.inv_std, CLIP
        self.register_buffer("mean", mean.clone())
        self.register_buffer("inv_std", inv_std.clone())

    def forward(self, obs: Tensor) -> Tensor:
        """See the class."""
        normalized = (obs.clamp(-self.clip_obs, self.clip_obs) - self.mean) * self.inv_std
        mu: Tensor = self.network({"obs": normalized.clamp(-self.limit, self.limit)})[0]
        return mu.clamp(-self.bound, self.bound)
