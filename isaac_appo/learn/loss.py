"""The PPO loss of rl_games, with row masks and the importance weight of decoupled PPO.

``decoupled`` (Hilton et al. 2021, "Batch size-invariance for policy optimization"): the clip is anchored at the
proximal policy, the weights of the learner when the update began, and the stale behaviour policy enters only through
``w = min(pi_prox / mu, w_max)``. ``behaviour``: the clip is anchored at the behaviour policy and ``w = 1``. Fresh data
make the two the same.
"""

from __future__ import annotations

from typing import NamedTuple, Optional

import torch
from torch import Tensor

from isaac_appo.policy.actor_critic import PolicyOutput
from isaac_appo.policy.sampling import neglogp

HALF_LOG_TWO_PI_E = 1.4189385332046727
BOUNDS = 1.1
"""Means beyond +-1.1 pay the bounds loss (rl_games)."""


class LossSettings(NamedTuple):
    """Coefficients, in rl_games' names."""

    e_clip: float
    clip_value: bool
    critic_coef: float
    entropy_coef: float
    bounds_loss_coef: float
    bound_loss_type: str

    def scalars(self, device: torch.device) -> LossScalars:
        """What the loss reads on ``device``."""
        e, entropy = self.e_clip, self.entropy_coef
        return LossScalars(*torch.tensor([1.0 - e, 1.0 + e, -e, e, entropy], device=device).unbind())


class LossScalars(NamedTuple):
    """Float32 scalars in memory, so that a captured minibatch sees a change of theirs."""

    low: Tensor
    high: Tensor
    """Bounds of the ratio, ``1 -+ e_clip``."""
    minus_clip: Tensor
    clip: Tensor
    entropy_coef: Tensor


class Minibatch(NamedTuple):
    """One minibatch of ``M`` rows; rows whose ``mask`` is 0 (dead, NaN, padding) weigh nothing."""

    obs_MO: Tensor
    """Normalised observations."""
    actions_MA: Tensor
    anchor_neglogp_M: Tensor
    """Negative log-probability under the policy that the clip is anchored at."""
    weight_M: Tensor
    """Importance weight ``w`` (1 on fresh data)."""
    advantages_M: Tensor
    """Standardised over the live rows of the batch."""
    returns_M: Tensor
    """Normalised value targets."""
    values_M: Tensor
    """Normalised values that the value clip is anchored at."""
    mask_M: Tensor
    rolling_mu_MA: Tensor
    """Means as of the last visit to these rows: overwritten after each, as rl_games does."""
    rolling_sigma_MA: Tensor
    prox_mu_MA: Tensor
    prox_sigma_MA: Tensor
    behaviour_mu_MA: Tensor
    behaviour_sigma_MA: Tensor
    states_MS: Optional[Tensor] = None
    """Normalised states, where the critic is asymmetric."""


class LossTerms(NamedTuple):
    """Scalar means over the live rows."""

    total: Tensor
    actor: Tensor
    critic: Tensor
    entropy: Tensor
    bounds: Tensor
    clip_fraction: Tensor
    kl_rolling: Tensor
    """From these rows' policy at their last visit."""
    kl_behaviour: Tensor
    """From the policy that collected them."""
    rows: Tensor
    """Live rows, at least 1."""


def masked_mean(x_M: Tensor, mask_M: Tensor, rows: Tensor) -> Tensor:
    """``sum(mask * x) / rows``. Masked rows are finite: environments zero what broke, targets write every row."""
    return (mask_M * x_M).sum() / rows


def gaussian_kl(mu_p: Tensor, sigma_p: Tensor, mu_q: Tensor, sigma_q: Tensor) -> Tensor:
    """rl_games' ``policy_kl``: KL(p || q) of diagonal Gaussians ``[M, A] -> [M]``, with its 1e-5 guards.

    The adaptive schedule's thresholds were tuned with this very expression, guards included.
    """
    log_ratio = torch.log(sigma_q / sigma_p + 1e-5)
    spread = (sigma_p.square() + (mu_q - mu_p).square()) / (2.0 * (sigma_q.square() + 1e-5))
    return (log_ratio + spread - 0.5).sum(-1)


def bounds_loss(mu_MA: Tensor, kind: str) -> Tensor:
    """Penalty on means out of reach of the action bounds ``[M]``."""
    if kind == "regularisation":
        return mu_MA.square().sum(-1)
    return (mu_MA.abs() - BOUNDS).clamp(min=0.0).square().sum(-1)


def value_loss(values_M: Tensor, batch: Minibatch, s: LossSettings, c: LossScalars) -> Tensor:
    """Squared error ``[M]``, clipped about the old values where ``clip_value``."""
    error = (values_M - batch.returns_M).square()
    if not s.clip_value:
        return error
    clipped = batch.values_M + (values_M - batch.values_M).clamp(c.minus_clip, c.clip)
    return torch.maximum(error, (clipped - batch.returns_M).square())


def ppo_loss(
    output: PolicyOutput, batch: Minibatch, s: LossSettings, scalars: Optional[LossScalars] = None
) -> LossTerms:
    """rl_games' ``a + 0.5*critic_coef*c - entropy_coef*H + bounds_loss_coef*b`` over the live rows.

    ``scalars`` stand for the values of the same names in ``s``; by default they are made of them.
    """
    c = s.scalars(output.mu.device) if scalars is None else scalars
    rows = batch.mask_M.sum().clamp(min=1.0)
    sigma = torch.exp(output.log_std)
    ratio = torch.exp(batch.anchor_neglogp_M - neglogp(batch.actions_MA, output.mu, output.log_std))
    clipped = ratio.clamp(c.low, c.high)
    gain = torch.minimum(ratio * batch.advantages_M, clipped * batch.advantages_M)
    actor = masked_mean(-batch.weight_M * gain, batch.mask_M, rows)
    critic = masked_mean(value_loss(output.value, batch, s, c), batch.mask_M, rows)
    entropy = masked_mean((output.log_std + HALF_LOG_TWO_PI_E).sum(-1), batch.mask_M, rows)
    total = actor + 0.5 * s.critic_coef * critic
    bounds = torch.zeros_like(actor)
    if s.entropy_coef:
        total = total - c.entropy_coef * entropy
    if s.bounds_loss_coef:
        bounds = masked_mean(bounds_loss(output.mu, s.bound_loss_type), batch.mask_M, rows)
        total = total + s.bounds_loss_coef * bounds
    with torch.no_grad():
        outside = ((ratio - 1.0).abs() > c.clip).float()
        clip_fraction = masked_mean(outside, batch.mask_M, rows)
        kl = gaussian_kl(output.mu, sigma, batch.rolling_mu_MA, batch.rolling_sigma_MA)
        kl = masked_mean(kl, batch.mask_M, rows)
        drift = gaussian_kl(batch.behaviour_mu_MA, batch.behaviour_sigma_MA, output.mu, sigma)
        drift = masked_mean(drift, batch.mask_M, rows)
        batch.rolling_mu_MA.copy_(output.mu)
        batch.rolling_sigma_MA.copy_(sigma)
    return LossTerms(total, actor, critic, entropy, bounds, clip_fraction, kl, drift, rows)
