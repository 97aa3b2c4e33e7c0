"""Counter-based noise: a function of (seed, step, env) and nothing else, normal, and priced rightly."""

from __future__ import annotations

from typing import Tuple

import torch
from torch import Tensor

from isaac_appo.kernels import wp
from isaac_appo.policy.sampling import neglogp, sample_kernel


def sample(seed: int, step: int, mu: Tensor, log_std: Tensor, limit: float = 1.0, first: int = 0) -> Tuple[Tensor, ...]:
    action, env_action, sigma = (torch.full_like(mu, torch.nan) for _ in range(3))
    price = torch.full((len(mu),), torch.nan)
    outputs = [wp.from_torch(x) for x in (action, env_action, sigma, price)]
    clock = wp.array([step], dtype=wp.int64, device="cpu")
    inputs = [seed, clock, first, limit, wp.from_torch(mu), wp.from_torch(log_std)]
    wp.launch(sample_kernel, dim=len(mu), inputs=inputs, outputs=outputs, device="cpu")
    return action, env_action, sigma, price


def zeros(rows: int = 64, actions: int = 9) -> Tuple[Tensor, Tensor]:
    return torch.zeros(rows, actions), torch.zeros(rows, actions)


def test_noise_is_a_function_of_seed_step_and_env() -> None:
    base = sample(1, 7, *zeros())[0]
    assert torch.equal(sample(1, 7, *zeros())[0], base)
    for other in (sample(2, 7, *zeros())[0], sample(1, 8, *zeros())[0], sample(1 + 2**40, 7, *zeros())[0]):
        assert (other != base).float().mean() > 0.99
    part = sample(1, 7, *zeros(16), first=48)[0]  # a shard of the envs draws what the whole would
    assert torch.equal(part, base[48:])


def test_noise_is_standard_normal_and_uncorrelated() -> None:
    draws = torch.stack([sample(3, step, *zeros(512, 8))[0] for step in range(64)])
    flat = draws.flatten().double()
    assert abs(float(flat.mean())) < 0.01 and abs(float(flat.std()) - 1.0) < 0.01
    assert abs(float((flat**3).mean())) < 0.03 and abs(float((flat**4).mean()) - 3.0) < 0.1
    assert torch.corrcoef(draws.permute(2, 0, 1).reshape(8, -1)).fill_diagonal_(0).abs().max() < 0.03
    assert torch.corrcoef(draws[:8].reshape(8, -1)).fill_diagonal_(0).abs().max() < 0.06
    assert len(flat.unique()) > 0.99 * len(flat)


def test_philox_known_answer() -> None:
    """Random123's known-answer vectors for philox4x32-10 with all-zero and all-one counter and key."""
    out = torch.zeros(2, 4)
    wp.launch(_first_draws, dim=1, inputs=[wp.from_torch(out)], device="cpu")
    words = [[0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8], [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]]
    expected = (torch.tensor(words, dtype=torch.float64) + 0.5) / 2**32
    assert torch.allclose(out.double(), expected, atol=1e-7)


def test_price_is_the_density_of_the_unclipped_action() -> None:
    generator = torch.Generator().manual_seed(0)
    mu, log_std = torch.randn(64, 5, generator=generator) * 2, torch.randn(64, 5, generator=generator) * 0.3
    action, env_action, sigma, price = sample(5, 1, mu, log_std)
    normal = torch.distributions.Normal(mu.double(), log_std.double().exp())
    assert torch.allclose(price.double(), -normal.log_prob(action.double()).sum(-1), atol=1e-4)
    assert torch.allclose(neglogp(action, mu, log_std), price, atol=1e-5)
    assert torch.allclose(sigma, log_std.exp())
    assert (action.abs() > 1).any() and torch.equal(env_action, action.clamp(-1, 1))


from isaac_appo.kernels import philox_uniform  # noqa: E402


@wp.kernel
def _first_draws(out: wp.array(dtype=wp.float32, ndim=2)):
    low = philox_uniform(wp.uint64(0), wp.uint64(0), wp.uint32(0), wp.uint32(0))
    ones = wp.uint64(0xFFFFFFFFFFFFFFFF)
    high = philox_uniform(ones, ones, wp.uint32(0xFFFFFFFF), wp.uint32(0xFFFFFFFF))
    for i in range(4):
        out[0, i] = low[i]
        out[1, i] = high[i]
