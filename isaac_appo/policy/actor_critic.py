"""The actor-critic: rl_games' network builder inside, our normalisers around it, rl_games' state-dict keys outside."""

from __future__ import annotations

from typing import Any, Dict, Mapping, NamedTuple, Optional, Tuple

import torch
from torch import Tensor, nn

from isaac_appo.policy.central_value import CentralValue, Normalizer, build_network
from isaac_appo.policy.normalizer import IdentityNormalizer, RunningNormalizer


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
        central_value: the asymmetric critic. Where there is one, its values count; the network's own value head is
            trained beside it, as rl_games does, and used for nothing.

    Attributes:
        mixed_precision: compute the network in bfloat16; what comes out is float32 all the same.
    """

    def __init__(
        self,
        network: Mapping[str, Any],
        num_obs: int,
        num_actions: int,
        normalize_input: bool,
        normalize_value: bool,
        central_value: Optional[CentralValue] = None,
    ) -> None:
        super().__init__()
        self.mixed_precision = False
        self.num_obs = num_obs
        self.num_actions = num_actions
        self.a2c_network = build_network(dict(network), num_obs, num_actions)
        self.running_mean_std: Normalizer = RunningNormalizer(num_obs) if normalize_input else IdentityNormalizer()
        self.value_mean_std: Normalizer = RunningNormalizer(1) if normalize_value else IdentityNormalizer()
        self.central_value = central_value  # last: its parameters come after the policy's

    def forward(self, normalized_obs: Tensor) -> PolicyOutput:
        """Evaluate already normalised observations ``[B, O]``: they are normalised once, not once per use."""
        if not self.mixed_precision:
            mu, log_std, value, _ = self.a2c_network({"obs": normalized_obs})
            return PolicyOutput(mu, log_std, value.squeeze(-1))
        with torch.autocast(normalized_obs.device.type, torch.bfloat16, cache_enabled=False):  # a graph has no cache
            mu, log_std, value, _ = self.a2c_network({"obs": normalized_obs})
        return PolicyOutput(mu.float(), log_std.float(), value.float().squeeze(-1))

    @property
    def value_normalizer(self) -> Normalizer:
        """The statistics of the critic whose values count."""
        return self.value_mean_std if self.central_value is None else self.central_value.value_mean_std

    def denormalized_value(self, output: PolicyOutput, states: Optional[Tensor], out: Tensor) -> Tensor:
        """Write the critic's values ``[B]`` into ``out``: of raw ``states`` if it is asymmetric, else of ``output``."""
        critic = self.central_value
        if critic is None:
            return self.value_mean_std.denormalize(output.value, out)
        assert states is not None
        return critic.value_mean_std.denormalize(critic(critic.normalized(states)), out)

    def own_state_dict(self) -> Dict[str, Tensor]:
        """Copies under the keys of rl_games' ``model``: all but the asymmetric critic."""
        own = {name: tensor for name, tensor in self.state_dict().items() if not name.startswith("central_value.")}
        return {name: tensor.clone() for name, tensor in own.items()}

    def load_saved(self, model: Mapping[str, Tensor], central_value: Optional[Mapping[str, Tensor]]) -> None:
        """Restore from rl_games' ``model`` and ``assymetric_vf_nets``; missing or unexpected keys are a RuntimeError.

        What torch.compile puts before names is taken off.
        """
        state = dict(model)
        for name, tensor in (central_value or {}).items():
            state[name.replace("model.", "central_value.", 1)] = tensor
        self.load_state_dict({name.replace("_orig_mod.", ""): x for name, x in state.items()}, strict=True)
        self.publish_statistics()

    def _normalizers(self) -> Dict[str, Normalizer]:
        kinds = (RunningNormalizer, IdentityNormalizer)
        return {name: module for name, module in self.named_modules() if isinstance(module, kinds)}

    def publish_statistics(self) -> None:
        """Make the published statistics of all normalisers follow their accumulators."""
        for normalizer in self._normalizers().values():
            normalizer.publish()

    def published_tensors(self) -> Tuple[Tuple[str, Tensor], ...]:
        """Names and tensors that make up a version, in a fixed order: parameters first, then statistics."""
        tensors: Dict[str, Tensor] = dict(self.named_parameters())
        for name, normalizer in self._normalizers().items():
            if isinstance(normalizer, RunningNormalizer):
                tensors[name + ".mean"] = normalizer.mean
                tensors[name + ".inv_std"] = normalizer.inv_std
        return tuple(tensors.items())
