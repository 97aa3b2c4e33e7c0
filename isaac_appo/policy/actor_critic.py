"""The actor-critic: rl_games' network builder inside, our normalisers around it, rl_games' state-dict keys outside."""

from __future__ import annotations

import contextlib
import io
from typing import Any, Dict, Mapping, NamedTuple, Tuple, Union

import torch
from torch import Tensor, nn

from isaac_appo.policy.normalizer import IdentityNormalizer, RunningNormalizer

Normalizer = Union[RunningNormalizer, IdentityNormalizer]


class PolicyOutput(NamedTuple):
    """What the network says about a batch of observations."""

    mu: Tensor
    """Action means ``[B, A]``, unclipped."""
    log_std: Tensor
    """Natural logarithm of the action standard deviations ``[B, A]``."""
    value: Tensor
    """Normalised state values ``[B]``."""


class ActorCritic(nn.Module):
    """Gaussian policy and value function of rl_games' ``actor_critic`` network.

    Args:
        network: the ``network:`` block of an rl_games YAML, unchanged.
        num_obs, num_actions: sizes O and A.
        normalize_input, normalize_value: rl_games' switches.

    Attributes:
        mixed_precision: compute the network in bfloat16; what comes out is float32 all the same.
    """

    def __init__(
        self, network: Mapping[str, Any], num_obs: int, num_actions: int, normalize_input: bool, normalize_value: bool
    ) -> None:
        super().__init__()
        self.mixed_precision = False
        self.num_obs = num_obs
        self.num_actions = num_actions
        self.a2c_network = _build_network(dict(network), num_obs, num_actions)
        self.running_mean_std: Normalizer = RunningNormalizer(num_obs) if normalize_input else IdentityNormalizer()
        self.value_mean_std: Normalizer = RunningNormalizer(1) if normalize_value else IdentityNormalizer()

    def forward(self, normalized_obs: Tensor) -> PolicyOutput:
        """Evaluate already normalised observations ``[B, O]``: they are normalised once, not once per use."""
        if not self.mixed_precision:
            mu, log_std, value, _ = self.a2c_network({"obs": normalized_obs})
            return PolicyOutput(mu, log_std, value.squeeze(-1))
        with torch.autocast(normalized_obs.device.type, torch.bfloat16, cache_enabled=False):  # a graph has no cache
            mu, log_std, value, _ = self.a2c_network({"obs": normalized_obs})
        return PolicyOutput(mu.float(), log_std.float(), value.float().squeeze(-1))

    def publish_statistics(self) -> None:
        """Make the published statistics of both normalisers follow their accumulators."""
        self.running_mean_std.publish()
        self.value_mean_std.publish()

    def published_tensors(self) -> Tuple[Tuple[str, Tensor], ...]:
        """Names and tensors that make up a version, in a fixed order: parameters first, then statistics."""
        tensors: Dict[str, Tensor] = dict(self.named_parameters())
        for name in ("running_mean_std", "value_mean_std"):
            normalizer = getattr(self, name)
            if isinstance(normalizer, RunningNormalizer):
                tensors[name + ".mean"] = normalizer.mean
                tensors[name + ".inv_std"] = normalizer.inv_std
        return tuple(tensors.items())


def _build_network(network: Dict[str, Any], num_obs: int, num_actions: int) -> nn.Module:
    """Build rl_games' ``actor_critic``; what it prints while building is kept off the console."""
    from rl_games.algos_torch.network_builder import A2CBuilder

    builder = A2CBuilder()
    builder.load(network)
    with contextlib.redirect_stdout(io.StringIO()):
        return builder.build("actor_critic", actions_num=num_actions, input_shape=(num_obs,), num_seqs=1, value_size=1)
