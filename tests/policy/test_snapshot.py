"""A version is one buffer: weights, log-std, statistics and the version word travel together."""

from __future__ import annotations

import torch

from isaac_appo.policy.snapshot import ALIGNMENT, PolicyBuffer, SnapshotRing
from tests.helpers import make_model


def test_parameters_and_statistics_are_aligned_views_and_binding_changes_no_value() -> None:
    model = make_model(5, 2)
    before = {name: tensor.clone() for name, tensor in model.published_tensors()}
    buffer = PolicyBuffer(model)
    low, high = buffer.bytes.data_ptr(), buffer.bytes.data_ptr() + buffer.bytes.numel()
    for name, tensor in model.published_tensors():
        assert torch.equal(tensor, before[name]) and low <= tensor.data_ptr() < high
    assert buffer.parameters.numel() == sum(p.numel() for p in model.parameters())
    assert model.running_mean_std.mean.data_ptr() % ALIGNMENT == low % ALIGNMENT
    assert torch.equal(buffer.parameters, torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert any(name.endswith("sigma") for name, _ in model.named_parameters())
    assert int(buffer.version) == -1


def test_adopting_gives_the_published_policy_whole() -> None:
    source, target = make_model(5, 2, seed=1), make_model(5, 2, seed=2)
    trained, acting = PolicyBuffer(source), PolicyBuffer(target)
    ring = SnapshotRing(trained, 2)
    obs = torch.randn(7, 5)
    published = []
    for version in (0, 1, 2):
        source.running_mean_std.update(torch.randn(50, 5) + version, torch.ones(50))
        source.publish_statistics()
        with torch.no_grad():
            trained.parameters.mul_(1.1)
            published.append(source(source.running_mean_std.normalize(obs, torch.empty_like(obs))).mu)
        trained.version.fill_(version)
        ring.publish(trained, version % 2)
    for version in (1, 2):
        ring.adopt(acting, version % 2)
        with torch.no_grad():
            mu = target(target.running_mean_std.normalize(obs, torch.empty_like(obs))).mu
        assert torch.equal(mu, published[version]) and int(acting.version) == version
    assert int(ring.version(0)) == 2 and int(ring.version(1)) == 1


def test_publishing_leaves_what_was_adopted_alone() -> None:
    source, target = make_model(5, 2, seed=1), make_model(5, 2, seed=2)
    trained, acting = PolicyBuffer(source), PolicyBuffer(target)
    ring = SnapshotRing(trained, 2)
    ring.publish(trained, 0)
    ring.adopt(acting, 0)
    before = acting.bytes.clone()
    trained.parameters.fill_(9.0)
    ring.publish(trained, 1)
    assert torch.equal(acting.bytes, before)
