"""The batch of one update: the slabs laid out env-major, so that a minibatch is a contiguous block of environments.

rl_games trains on the same blocks in the same order. Where ``count * size`` exceeds the slab, the last rows are padding
of mask 0 (see :func:`isaac_appo.config.minibatch.fit_minibatch`).
"""

from __future__ import annotations

from typing import List, Optional, Sequence

import torch
from torch import Tensor

from isaac_appo.learn.loss import Minibatch
from isaac_appo.rollout.slab import LIVE, Slab


class Batch:
    """Persistent flat tensors ``[R, ...]``, ``R = count * size`` rows of which the first ``N * T`` are the slab's.

    Args:
        horizon, num_envs, num_obs, num_actions: T, N, O, A.
        size, count: rows of a minibatch, and minibatches.
        num_states: S, 0 where the critic is not asymmetric.
    """

    def __init__(
        self,
        horizon: int,
        num_envs: int,
        num_obs: int,
        num_actions: int,
        size: int,
        count: int,
        device: torch.device,
        num_states: int = 0,
    ) -> None:
        self.horizon, self.num_envs, self.size, self.count = horizon, num_envs, size, count
        self.rows = horizon * num_envs
        total = size * count

        def flat(*shape: int) -> Tensor:
            return torch.zeros((total, *shape), device=device)

        self.obs = flat(num_obs)
        self.actions, self.behaviour_mu, self.behaviour_sigma = (flat(num_actions) for _ in range(3))
        self.prox_mu, self.prox_sigma, self.rolling_mu, self.rolling_sigma = (flat(num_actions) for _ in range(4))
        self.behaviour_neglogp, self.prox_neglogp, self.weight, self.mask = (flat() for _ in range(4))
        self.advantages, self.returns, self.values = (flat() for _ in range(3))
        for sigma in (self.behaviour_sigma, self.prox_sigma, self.rolling_sigma):
            sigma.fill_(1.0)  # padding rows must stay finite: they are masked, not skipped
        self.boot_obs = torch.zeros(num_envs, num_obs, device=device)
        self.states: Optional[Tensor] = flat(num_states) if num_states else None
        self.boot_states = torch.zeros(num_envs, num_states, device=device)

    def env_major(self, flat: Tensor) -> Tensor:
        """The slab's rows of a flat tensor as ``[N, T, ...]``."""
        return flat[: self.rows].view(self.num_envs, self.horizon, *flat.shape[1:])

    def time_major(self, flat: Tensor) -> Tensor:
        """The slab's rows of a flat tensor as ``[T, N, ...]`` (a view)."""
        return self.env_major(flat).transpose(0, 1)

    def load(self, slabs: Sequence[Slab]) -> None:
        """Copy what the behaviour policies wrote: the slab of each worker, side by side in the order of the workers."""
        first = 0
        for slab in slabs:
            self._load(slab, slice(first, first + slab.num_envs))
            first += slab.num_envs
        self.mask[self.rows :].zero_()  # a shuffle may have moved live rows into the padding

    def _load(self, slab: Slab, envs: slice) -> None:
        pairs = (
            (self.obs, slab.obs_TNO[: self.horizon]),
            (self.actions, slab.actions_TNA),
            (self.behaviour_mu, slab.mu_TNA),
            (self.behaviour_sigma, slab.sigma_TNA),
            (self.behaviour_neglogp, slab.neglogp_TN),
            (self.mask, slab.status_TN == LIVE),
        )
        for flat, rows in pairs:
            self.time_major(flat)[:, envs].copy_(rows)
        self.boot_obs[envs].copy_(slab.obs_TNO[self.horizon])
        if self.states is not None and slab.states_TNS is not None:
            self.time_major(self.states)[:, envs].copy_(slab.states_TNS[: self.horizon])
            self.boot_states[envs].copy_(slab.states_TNS[self.horizon])

    def minibatches(self, behaviour_anchor: bool) -> List[Minibatch]:
        """Views of the ``count`` minibatches; ``behaviour_anchor`` anchors the clip at the behaviour policy."""
        anchor = self.behaviour_neglogp if behaviour_anchor else self.prox_neglogp
        fields = [self.obs, self.actions, anchor, self.weight, self.advantages, self.returns, self.values, self.mask]
        fields += [self.rolling_mu, self.rolling_sigma, self.prox_mu, self.prox_sigma]
        fields += [self.behaviour_mu, self.behaviour_sigma]
        fields += [self.states] if self.states is not None else []
        return [Minibatch(*(f[i * self.size : (i + 1) * self.size] for f in fields)) for i in range(self.count)]

    def shuffle(self, order: Tensor) -> None:
        """Put all rows, padding included, in the order ``[R]`` int64."""
        for name, tensor in vars(self).items():
            if isinstance(tensor, Tensor) and not name.startswith("boot_"):
                tensor.copy_(tensor.index_select(0, order))
