"""Advantages and value targets: one function for GAE and V-trace, as a plain float64 reference.

The kernel that training runs is :mod:`isaac_appo.learn.target_kernels`; this file is what it is tested against, and
what to read first. Both are lambda-mixed V-trace, which on policy *is* GAE (Espeholt et al. 2018, eq. 1-2; Schulman et
al. 2016)::

    w     = pi_prox / mu            rho = min(rho_bar, w)        c = lambda * min(c_bar, w)
    V'    = 0 if terminated, V(last obs) if truncated, else V[t+1]
    delta = rho * (r + gamma * V' - V)
    D     = delta + gamma * c * (1 - done) * D[t+1]              vs = V + D
    boot  = V' if done or last row, else lambda * vs[t+1] + (1 - lambda) * V[t+1]
    A     = r + gamma * boot - V

``A`` carries no leading ``rho``: the loss holds the importance weight, and correcting twice is wrong. A row that is not
live (dead, NaN, over the lag limit) has ``D = 0``, ``A = 0``, ``vs = V``: traces end there and nothing is learnt.
"""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor


class TargetSettings(NamedTuple):
    """Discounts and clips. GAE is ``use_vtrace=False``: every weight is taken as 1."""

    gamma: float
    lam: float
    use_vtrace: bool = False
    rho_bar: float = 1.0
    c_bar: float = 1.0


def reference_targets(
    rewards_TN: Tensor,
    values_TN: Tensor,
    terminated_TN: Tensor,
    truncated_TN: Tensor,
    live_TN: Tensor,
    settings: TargetSettings,
    w_TN: Optional[Tensor] = None,
    final_values_TN: Optional[Tensor] = None,
) -> Tuple[Tensor, Tensor]:
    """Targets ``(vs_TN, advantages_TN)`` in float64.

    Args:
        rewards_TN: shaped rewards ``[T, N]``.
        values_TN: ``[T + 1, N]``, the last row being the bootstrap.
        terminated_TN, truncated_TN, live_TN: bool ``[T, N]``; ``terminated`` wins.
        w_TN: ``pi_prox / mu``, read where ``settings.use_vtrace``; ``None`` means on policy.
        final_values_TN: values of the true last observations at truncations, for envs that return the observation
            after the reset; ``None`` means that they are ``values_TN[t + 1]``. Given ``values_TN[:-1]`` instead, it is
            rl_games' bootstrap, for envs that throw the last observation away.
    """
    horizon = rewards_TN.shape[0]
    r, v = rewards_TN.double(), values_TN.double()
    w = torch.ones_like(r) if w_TN is None or not settings.use_vtrace else w_TN.double()
    rho = w.clamp(max=settings.rho_bar) if settings.use_vtrace else w
    c = settings.lam * (w.clamp(max=settings.c_bar) if settings.use_vtrace else w)
    done = terminated_TN | truncated_TN
    final = v[1:] if final_values_TN is None else torch.where(truncated_TN, final_values_TN.double(), v[1:])
    next_v = torch.where(terminated_TN, torch.zeros_like(final), final)
    vs, advantages = torch.zeros_like(r), torch.zeros_like(r)
    trace = torch.zeros_like(r[0])
    for t in reversed(range(horizon)):
        delta = rho[t] * (r[t] + settings.gamma * next_v[t] - v[t])
        mixed = next_v[t] if t == horizon - 1 else settings.lam * vs[t + 1] + (1 - settings.lam) * v[t + 1]
        boot = torch.where(done[t], next_v[t], mixed)
        trace = torch.where(live_TN[t], delta + settings.gamma * c[t] * (~done[t]) * trace, torch.zeros_like(trace))
        vs[t] = v[t] + trace
        advantages[t] = torch.where(live_TN[t], r[t] + settings.gamma * boot - v[t], torch.zeros_like(trace))
    return vs, advantages
