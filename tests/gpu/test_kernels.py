"""Kernels on each device against float64, and Warp launched where torch launches."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch

from isaac_appo import kernels
from isaac_appo.kernels import launch, wp
from isaac_appo.learn.target_kernels import TargetLaunch
from isaac_appo.learn.targets import TargetSettings, reference_targets
from isaac_appo.policy.normalizer import RunningNormalizer
from isaac_appo.policy.sampling import sample_kernel
from isaac_appo.rollout.slab import DEAD, Slab

DEVICES = ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu(physics=False))]


@pytest.mark.parametrize("use_vtrace", [True, False])
@pytest.mark.parametrize("device", DEVICES)
def test_targets_against_float64(device: str, use_vtrace: bool) -> None:
    horizon, num_envs, place = 32, 257, torch.device(device)
    generator = torch.Generator().manual_seed(1)
    slab = Slab(horizon, num_envs, 1, 1, place)
    slab.rewards_TN.copy_(torch.randn(horizon, num_envs, generator=generator))
    for flags in (slab.terminated_TN, slab.truncated_TN):
        flags.copy_(torch.rand(horizon, num_envs, generator=generator) < 0.05)
    slab.status_TN.copy_((torch.rand(horizon, num_envs, generator=generator) < 0.1) * DEAD)
    values = torch.randn(horizon + 1, num_envs, generator=generator).to(device)
    w = torch.exp(0.3 * torch.randn(horizon, num_envs, generator=generator)).to(device)
    outputs = torch.full((2, horizon, num_envs), torch.nan, device=device)
    settings = TargetSettings(0.99, 0.95, use_vtrace, 1.2, 1.0)
    TargetLaunch(slab, values, w, (outputs[0], outputs[1]), settings)()
    host = [x.cpu() for x in (slab.rewards_TN, values, slab.terminated_TN, slab.truncated_TN, slab.status_TN == 0)]
    expected = torch.stack(reference_targets(*host, settings, w.cpu()))
    error = (outputs.cpu() - expected).abs() / (1.0 + expected.abs())
    assert float(error.max()) < 1e-5
    if use_vtrace:  # the weights count
        assert float((torch.stack(reference_targets(*host, settings)) - expected).abs().max()) > 0.1


@pytest.mark.parametrize("device", DEVICES)
def test_sampling_against_float64_and_the_same_on_every_device(device: str) -> None:
    num_envs, num_actions = 300, 6
    generator = torch.Generator().manual_seed(2)
    mu, log_std = (torch.randn(num_envs, num_actions, generator=generator) for _ in range(2))
    drawn = {}
    for place in {"cpu", device}:
        outs = [torch.full((num_envs, num_actions), torch.nan, device=place) for _ in range(3)]
        price = torch.full((num_envs,), torch.nan, device=place)
        given = [wp.from_torch(x.to(place)) for x in (mu, log_std)]
        clock = wp.from_torch(torch.tensor([7], device=place))
        outputs = [wp.from_torch(x) for x in (*outs, price)]
        launch(sample_kernel, num_envs, [3 + 2**40, clock, 0, 1.0, *given], outputs, place)
        drawn[place] = [x.cpu() for x in (*outs, price)]
    action, env_action, sigma, price = drawn[device]
    assert torch.equal(env_action, action.clamp(-1.0, 1.0)) and (action.abs() > 1.0).any()
    normal = torch.distributions.Normal(mu.double(), log_std.double().exp())
    torch.testing.assert_close(price.double(), -normal.log_prob(action.double()).sum(1), atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(sigma.double(), normal.stddev, atol=1e-6, rtol=1e-6)
    noise = [(drawn[place][0] - mu) / drawn[place][2] for place in ("cpu", device)]
    torch.testing.assert_close(noise[1], noise[0], atol=1e-5, rtol=1e-5)
    assert abs(float(noise[1].mean())) < 0.1 and abs(float(noise[1].std()) - 1.0) < 0.1


@pytest.mark.parametrize("device", DEVICES)
def test_normaliser_against_float64(device: str) -> None:
    generator = torch.Generator().manual_seed(3)
    normalizer = RunningNormalizer(5).to(device)
    rows: List[Any] = []
    for part in range(4):
        x = 1e3 + torch.randn(500, 5, generator=generator) * (part + 1.0)
        weight = (torch.rand(500, generator=generator) < 0.8).float()
        rows.append(x[weight > 0].double())
        x[weight == 0] = torch.nan  # rows that do not count may hold anything
        normalizer.update(x.to(device), weight.to(device))
        normalizer.publish()
    every = torch.cat(rows)
    every = torch.cat([every, torch.zeros(0, 5, dtype=torch.float64)])
    count, mean, square = len(every), every.mean(0), every.square().mean(0)
    expected = count * mean / (count + 1.0)  # rl_games starts at one row of mean 0 and variance 1
    variance = (count * square + 1.0) / (count + 1.0) - expected.square()
    torch.testing.assert_close(normalizer.running_mean.cpu(), expected, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(normalizer.running_var.cpu(), variance, rtol=1e-5, atol=0.0)
    torch.testing.assert_close(normalizer.mean.cpu().double(), expected, rtol=1e-6, atol=0.0)


# ------------------------------------------------------------------------------------------------------------ streams


class _Stream:
    def __init__(self, number: int) -> None:
        self.device_index, self.cuda_stream = 0, number


def test_a_torch_stream_has_one_wrapper_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch hands a stream out more than once, and Warp forgets it when any wrapper of it dies."""
    monkeypatch.setattr(wp, "stream_from_torch", lambda stream: ["wrapped", stream.cuda_stream])
    monkeypatch.setattr(kernels, "_streams", {})
    first = kernels.warp_stream(_Stream(5))
    assert kernels.warp_stream(_Stream(5)) is first and kernels.warp_stream(_Stream(6)) is not first


def test_a_launch_goes_where_torch_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """In every thread, whatever stream another has made Warp's own."""
    seen: List[Any] = []
    monkeypatch.setattr(wp, "launch", lambda *args, stream, **more: seen.append(stream))
    monkeypatch.setattr(wp, "stream_from_torch", lambda stream: stream.cuda_stream)
    monkeypatch.setattr(kernels, "_streams", {})
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: _Stream(9))
    launch(None, 1, [], device="cuda:0")
    launch(None, 1, [], device="cpu")
    kernels.use_stream("a stream")
    try:
        launch(None, 1, [], device="cuda:0")
    finally:
        kernels.use_stream(None)
    assert seen == [9, None, "a stream"]


@pytest.mark.gpu(physics=False)
def test_a_kernel_follows_what_torch_has_enqueued_on_its_stream() -> None:
    """On any other it would overtake the sleep and the fill."""
    device = torch.device("cuda:0")
    x, noise = torch.zeros(1000, 4, device=device), torch.zeros(3, 1000, 4, device=device)
    price, clock = torch.zeros(1000, device=device), torch.zeros(1, dtype=torch.int64, device=device)
    outputs = [wp.from_torch(tensor) for tensor in (*noise, price)]
    inputs = [1, wp.from_torch(clock), 0, 9.0, wp.from_torch(x), wp.from_torch(x)]
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100_000_000)
        x.fill_(50.0)
        launch(sample_kernel, 1000, inputs, outputs, "cuda:0")
    torch.cuda.synchronize()
    assert float(noise[2].min()) > 1e20  # exp(50)
