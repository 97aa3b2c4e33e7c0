"""Running statistics: equal to those of all live rows, in place, published on request only."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import torch

from isaac_appo.policy.normalizer import IdentityNormalizer, RunningNormalizer


def batches() -> torch.Tensor:
    return torch.randn(5, 200, 3, generator=torch.Generator().manual_seed(0)) * torch.tensor([1.0, 10.0, 0.1]) + 7.0


def test_statistics_are_those_of_all_rows_in_float64() -> None:
    normalizer = RunningNormalizer(3)
    for batch in batches():
        normalizer.update(batch, torch.ones(200))
        normalizer.publish()
    rows = batches().flatten(0, 1).double()
    start = torch.tensor([0.0, 0.0, 0.0], dtype=torch.float64)  # rl_games starts with one row of mean 0 and variance 1
    mean = (rows.sum(0) + start) / 1001
    var = ((rows - mean).square().sum(0) + 1.0 + mean.square()) / 1001
    assert torch.allclose(normalizer.running_mean, mean, rtol=1e-6)
    assert torch.allclose(normalizer.running_var, var, rtol=1e-5)
    assert float(normalizer.count) == 1001


def test_equals_rl_games() -> None:
    from rl_games.algos_torch.running_mean_std import RunningMeanStd

    with redirect_stdout(io.StringIO()):
        theirs = RunningMeanStd((3,))
    ours = RunningNormalizer(3)
    for batch in batches():
        theirs.train()
        expected = theirs(batch)
        ours.update(batch, torch.ones(200))
        ours.publish()
        assert torch.allclose(ours.normalize(batch, torch.empty_like(batch)), expected, atol=1e-4)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    theirs.eval()
    assert torch.allclose(
        ours.denormalize(expected, torch.empty_like(expected)), theirs(expected, denorm=True), atol=1e-4
    )


def test_rows_of_weight_zero_may_hold_anything() -> None:
    weight = torch.ones(200)
    weight[::3] = 0.0
    clean, dirty = RunningNormalizer(3), RunningNormalizer(3)
    for batch in batches():
        clean.update(batch[weight > 0], torch.ones(int(weight.sum())))
        spoilt = batch.clone()
        spoilt[::3] = float("nan")
        dirty.update(spoilt, weight)
    assert torch.allclose(clean.running_mean, dirty.running_mean, rtol=1e-12)
    assert torch.allclose(clean.running_var, dirty.running_var, rtol=1e-12)
    before = dirty.state_dict()["count"].clone()
    dirty.update(torch.full((4, 3), float("nan")), torch.zeros(4))
    assert torch.isfinite(dirty.running_mean).all() and torch.equal(dirty.count, before)


def test_updates_are_in_place_and_unseen_until_published() -> None:
    normalizer = RunningNormalizer(3)
    pointers = [t.data_ptr() for t in normalizer.buffers()]
    mean = normalizer.mean.clone()
    normalizer.update(batches()[0], torch.ones(200))
    assert torch.equal(normalizer.mean, mean)
    normalizer.publish()
    assert not torch.equal(normalizer.mean, mean)
    assert [t.data_ptr() for t in normalizer.buffers()] == pointers


def test_round_trip_and_clip() -> None:
    normalizer = RunningNormalizer(3)
    normalizer.update(batches()[0], torch.ones(200))
    normalizer.publish()
    x = batches()[0][:50]
    y = normalizer.normalize(x, torch.empty_like(x))
    assert y.abs().max() < 5 and torch.allclose(normalizer.denormalize(y, torch.empty_like(y)), x, atol=1e-4)
    assert normalizer.normalize(torch.full((1, 3), 1e9), torch.empty(1, 3)).tolist() == [[5.0, 5.0, 5.0]]
    identity = IdentityNormalizer()
    assert torch.equal(identity.normalize(x, torch.empty_like(x)), x) and not identity.state_dict()
