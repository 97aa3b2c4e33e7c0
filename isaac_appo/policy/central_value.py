"""The asymmetric critic: rl_games' central value network. It sees the state where the policy sees the observation."""

from __future__ import annotations

import contextlib
import io
from typing import Any, Dict, Mapping, Union

import torch
from torch import Tensor, nn

from isaac_appo.policy.normalizer import IdentityNormalizer, RunningNormalizer

Normalizer = Union[RunningNormalizer, IdentityNormalizer]


class CentralValue(nn.Module):
    """Value function of states ``[B, S]``, with its own network and normalisers.

    Args:
        network: the ``network:`` block of rl_games' ``central_value_config``, unchanged.
        num_states, num_actions: S and A (the network builder asks for A; nothing depends on it).
    """

    def __init__(
        self,
        network: Mapping[str, Any],
        num_states: int,
        num_actions: int,
        normalize_input: bool,
        normalize_value: bool,
    ) -> None:
        super().__init__()
        block = {**network, "central_value": True}
        self.a2c_network = build_network(block, num_states, num_actions)
        self.running_mean_std: Normalizer = RunningNormalizer(num_states) if normalize_input else IdentityNormalizer()
        self.value_mean_std: Normalizer = RunningNormalizer(1) if normalize_value else IdentityNormalizer()

    def forward(self, normalized_states: Tensor) -> Tensor:
        """Normalised values ``[B]`` of already normalised states ``[B, S]``."""
        value: Tensor = self.a2c_network({"obs": normalized_states})[0]
        return value.squeeze(-1)

    def normalized(self, states: Tensor) -> Tensor:
        """Normalised copies of ``states``."""
        return self.running_mean_std.normalize(states, torch.empty_like(states))

    def saved(self) -> Dict[str, Tensor]:
        """Copies under the keys of rl_games' ``assymetric_vf_nets`` (its spelling)."""
        return {f"model.{name}": tensor.clone() for name, tensor in self.state_dict().items()}


def build_network(network: Dict[str, Any], num_inputs: int, num_actions: int) -> nn.Module:
    """Build rl_games' ``actor_critic``; what it prints while building is kept off the console."""
    from rl_games.algos_torch.network_builder import A2CBuilder

    builder = A2CBuilder()
    builder.load(network)
    shape = {"actions_num": num_actions, "input_shape": (num_inputs,), "num_seqs": 1, "value_size": 1}
    with contextlib.redirect_stdout(io.StringIO()):
        return builder.build("actor_critic", **shape)
