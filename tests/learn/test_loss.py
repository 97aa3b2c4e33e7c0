"""The loss by hand, its masks, and KL by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from isaac_appo.learn.loss import LossSettings, Minibatch, bounds_loss, gaussian_kl, ppo_loss
from isaac_appo.policy.actor_critic import PolicyOutput
from isaac_appo.policy.sampling import neglogp

SETTINGS = LossSettings(
    e_clip=0.2, clip_value=True, critic_coef=2.0, entropy_coef=0.01, bounds_loss_coef=0.1, bound_loss_type="bound"
)


def minibatch(rows: int = 4, actions: int = 2, **changes: Any) -> Minibatch:
    zeros_a, zeros = torch.zeros(rows, actions), torch.zeros(rows)
    ones_a = torch.ones(rows, actions)
    entropy_part = neglogp(zeros_a, zeros_a, zeros_a)
    batch = Minibatch(
        torch.zeros(rows, 3), zeros_a.clone(), entropy_part, torch.ones(rows), zeros.clone(), zeros.clone(),
        zeros.clone(), torch.ones(rows), zeros_a.clone(), ones_a.clone(), zeros_a.clone(), ones_a.clone(),
        zeros_a.clone(), ones_a.clone(),
    )  # fmt: skip
    return batch._replace(**changes)


def output(mu: float = 0.0, value: float = 0.0, rows: int = 4) -> PolicyOutput:
    return PolicyOutput(torch.full((rows, 2), mu), torch.zeros(rows, 2), torch.full((rows,), value))


def test_actor_loss_by_hand() -> None:
    log_ratio = torch.tensor([0.1, 0.5, -0.5, 0.5]).log1p()  # ratios 1.1, 1.5, 0.5, 1.5
    anchor = neglogp(torch.zeros(4, 2), torch.zeros(4, 2), torch.zeros(4, 2)) + log_ratio
    batch = minibatch(anchor_neglogp_M=anchor, advantages_M=torch.tensor([1.0, 2.0, -1.0, -1.0]))
    batch = batch._replace(weight_M=torch.tensor([1.0, 1.0, 1.0, 0.5]))
    terms = ppo_loss(output(), batch, SETTINGS)
    # min(1.1, 1.1), min(3, 2.4), min(-.5, -.8), .5 * min(-1.5, -1.2)
    assert float(terms.actor) == pytest.approx(-(1.1 + 2.4 - 0.8 - 0.75) / 4)
    assert float(terms.clip_fraction) == pytest.approx(0.75)


def test_value_loss_by_hand_and_total() -> None:
    batch = minibatch(returns_M=torch.tensor([1.0, 1.0, 0.0, 0.0]), values_M=torch.tensor([0.0, 0.4, 0.0, 0.5]))
    terms = ppo_loss(output(value=0.5), batch, SETTINGS)
    # max((.5-1)^2, (.2-1)^2), max(.25, .25), max(.25, .04), max(.25, .25)
    assert float(terms.critic) == pytest.approx((0.64 + 0.25 + 0.25 + 0.25) / 4)
    entropy = 2 * 0.5 * math.log(2 * math.pi * math.e)
    assert float(terms.entropy) == pytest.approx(entropy, rel=1e-6)
    assert float(terms.total) == pytest.approx(float(terms.critic) - 0.01 * entropy, rel=1e-5)
    unclipped = ppo_loss(output(value=0.5), batch, SETTINGS._replace(clip_value=False))
    assert float(unclipped.critic) == pytest.approx(0.25)


def test_bounds_loss_by_hand() -> None:
    mu = torch.tensor([[1.1, -1.0], [2.1, -1.6]])
    assert bounds_loss(mu, "bound").tolist() == pytest.approx([0.0, 1.25], abs=1e-6)
    assert bounds_loss(mu, "regularisation").tolist() == pytest.approx([2.21, 6.97])


def test_a_masked_row_weighs_nothing_whatever_it_holds() -> None:
    advantages = torch.tensor([1.0, -2.0, 3.0, 1e4])
    returns = torch.tensor([1.0, 0.5, 0.0, 1e4])
    mask = torch.tensor([1.0, 1.0, 1.0, 0.0])
    mu = torch.full((4, 2), 0.3, requires_grad=True)
    full = ppo_loss(
        PolicyOutput(mu, torch.zeros(4, 2), torch.zeros(4)),
        minibatch(advantages_M=advantages, returns_M=returns, mask_M=mask),
        SETTINGS,
    )
    part = ppo_loss(output(0.3, rows=3), minibatch(3, advantages_M=advantages[:3], returns_M=returns[:3]), SETTINGS)
    assert float(full.total.detach()) == pytest.approx(float(part.total), rel=1e-6)
    full.total.backward()
    assert mu.grad is not None and torch.equal(mu.grad[3], torch.zeros(2)) and mu.grad[:3].abs().min() > 0
    assert float(full.rows) == 3.0


def test_all_masked_is_zero_not_nan() -> None:
    assert float(ppo_loss(output(), minibatch(mask_M=torch.zeros(4)), SETTINGS).total) == 0.0


def test_rolling_policy_is_overwritten_and_its_kl_is_by_hand() -> None:
    batch = minibatch()
    terms = ppo_loss(output(mu=0.4), batch, SETTINGS)
    # two actions of sigma 1, means 0.4 apart: 2 * (log(1 + 1e-5) + 1.16 / (2 (1 + 1e-5)) - 1/2)
    assert float(terms.kl_rolling) == pytest.approx(2 * (1e-5 + 1.16 / (2 * (1 + 1e-5)) - 0.5), rel=1e-4)
    assert torch.equal(batch.rolling_mu_MA, torch.full((4, 2), 0.4))
    assert float(ppo_loss(output(mu=0.4), batch, SETTINGS).kl_rolling) == pytest.approx(0.0, abs=2e-5)


def test_gaussian_kl_against_torch() -> None:
    generator = torch.Generator().manual_seed(0)
    mu_p, mu_q = torch.randn(2, 6, 3, generator=generator)
    sigma_p, sigma_q = torch.rand(2, 6, 3, generator=generator) + 0.5
    exact = torch.distributions.kl_divergence(
        torch.distributions.Normal(mu_p, sigma_p), torch.distributions.Normal(mu_q, sigma_q)
    ).sum(-1)
    assert torch.allclose(gaussian_kl(mu_p, sigma_p, mu_q, sigma_q), exact, atol=1e-3)
