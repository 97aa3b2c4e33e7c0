"""Slabs: persistent time-major tensors that hold one rollout of every environment.

Shape letters: ``T`` horizon, ``N`` environments, ``O`` observation size, ``A`` action size, ``S`` size of the state
that an asymmetric critic sees, ``X`` size of what the critic sees (``S`` if it is asymmetric, else ``O``).
"""

from __future__ import annotations

from typing import Dict, List, Optional, Tuple, Union

import torch
from torch import Tensor

from isaac_appo.rollout.facts import SlabFacts

LIVE, DEAD, NAN, LAG = 0, 1, 2, 3
"""Row status: trained on, or why not. DEAD: the row after ``done`` of a ``next_step`` or ``next_step_pre`` env, whose
action was chosen from the last observation of the episode before. NAN: physics broke.
LAG: collected with a version that is older than the limit."""

STATUS_NAMES = ("live", "dead", "nan", "lag")


class Slab:
    """One rollout. Allocated once; written by the policy stream, read by the learner stream, never resized.

    ``obs_TNO``, ``states_TNS`` and ``values_TN`` have ``T + 1`` rows: the last is the bootstrap row. What a time-out in
    row ``t`` bootstraps from depends on ``autoreset``. ``next_step*``: the true last observation of the episode is row
    ``t + 1``, so its value is the exact bootstrap. ``same_step``: it is in ``final_TNX`` if the env offers it; else the
    bootstrap is ``values_TN[t]``, which is what rl_games' ``value_bootstrap`` does.

    ``states_TNS`` and ``final_TNX`` are None where ``num_states`` and ``num_final`` are 0.
    """

    def __init__(
        self,
        horizon: int,
        num_envs: int,
        num_obs: int,
        num_actions: int,
        device: torch.device,
        num_states: int = 0,
        num_final: int = 0,
        autoreset: str = "next_step",
    ) -> None:
        shape = (horizon, num_envs)

        def floats(*size: int) -> Tensor:
            return torch.zeros(size, dtype=torch.float32, device=device)

        self.horizon, self.num_envs, self.autoreset = horizon, num_envs, autoreset
        self.obs_TNO = floats(horizon + 1, num_envs, num_obs)
        self.states_TNS: Optional[Tensor] = floats(horizon + 1, num_envs, num_states) if num_states else None
        self.final_TNX: Optional[Tensor] = floats(*shape, num_final) if num_final else None
        self.actions_TNA = floats(*shape, num_actions)
        self.mu_TNA = floats(*shape, num_actions)
        self.sigma_TNA = floats(*shape, num_actions)
        self.neglogp_TN = floats(*shape)
        self.values_TN = floats(horizon + 1, num_envs)
        self.rewards_TN = floats(*shape)
        self.terminated_TN = torch.zeros(shape, dtype=torch.bool, device=device)
        self.truncated_TN = torch.zeros(shape, dtype=torch.bool, device=device)
        self.status_TN = torch.zeros(shape, dtype=torch.uint8, device=device)
        self.version_TN = torch.zeros(shape, dtype=torch.int64, device=device)
        self.episode_return_TN = floats(*shape)
        self.episode_length_TN = torch.zeros(shape, dtype=torch.int32, device=device)

    def tensors(self) -> Dict[str, Tensor]:
        """Every tensor by name."""
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def state_dict(self) -> Dict[str, Tensor]:
        """Copies of every tensor."""
        return {name: tensor.clone() for name, tensor in self.tensors().items()}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """Copy a saved slab in place."""
        for name, tensor in self.tensors().items():
            tensor.copy_(state[name])

    def facts(self) -> SlabFacts:
        """Count the rows by status, and live rows by version: once per update, on the host."""
        return SlabFacts.of(self.summary().tolist())

    def summary(self) -> Tensor:
        """What :meth:`facts` are made of, on the device: int64 ``[T, 5]``, envs by status and the version of the row.

        All envs of a row are acted with one version.
        """
        counts = [(self.status_TN == status).sum(1) for status in (LIVE, DEAD, NAN, LAG)]
        return torch.stack([*counts, self.version_TN[:, 0]], 1)

    def mask_older(self, version: Union[int, Tensor]) -> None:
        """Mark live rows that were collected with a version below ``version`` as over the lag limit."""
        stale = (self.status_TN == LIVE) & (self.version_TN < version)
        self.status_TN.masked_fill_(stale, LAG)

    def finished_episodes(self) -> List[Tuple[float, int]]:
        """``(return, length)`` of the episodes that ended in this slab, in order of time: once per update."""
        return episodes_of(self.episode_return_TN, self.episode_length_TN)

    def truncated_episodes(self) -> int:
        """How many of them were cut by the time limit."""
        return int((self.truncated_TN & (self.episode_length_TN > 0)).sum())


def episodes_of(returns_TN: Tensor, lengths_TN: Tensor) -> List[Tuple[float, int]]:
    """``(return, length)`` where a length is above 0, row by row; waits for the device."""
    ended = lengths_TN > 0
    return list(zip(returns_TN[ended].tolist(), lengths_TN[ended].tolist()))
