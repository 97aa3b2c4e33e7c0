"""The learner on slabs from a real env: ratio 1 on fresh data, masks, statistics, proximal policy, padding."""

from __future__ import annotations

from typing import Any, Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.policy.sampling import neglogp
from isaac_appo.rollout.slab import DEAD, LIVE, Slab
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.schedule.program import Lockstep
from tests.helpers import cartpole_pipeline


def collected(lag: int = 0, updates: int = 0, **changes: Any) -> Tuple[Pipeline, int]:
    """A pipeline that has trained ``updates`` times and has one more slab ready; returns its index."""
    pipeline = cartpole_pipeline(num_updates=updates, lag=lag, learner=changes)
    assert isinstance(pipeline.program, Lockstep)
    handlers = pipeline.handlers()
    if updates:
        pipeline.run()
    else:
        fill(pipeline, -1)
        pipeline.learner.calibrate(-1)
        handlers["publish"](0)
    handlers["adopt"](0, updates, pipeline.program.snapshot_of(updates))
    fill(pipeline, updates)
    return pipeline, updates


def fill(pipeline: Pipeline, slab: int) -> None:
    collector = pipeline.workers[0].collector
    for t in range(pipeline.program.horizon):
        collector.act(slab, t)
        collector.step(slab, t)
    collector.bootstrap(slab)


def slab_of(pipeline: Pipeline, index: int) -> Slab:
    return pipeline.learner.slabs_of(index)[0]


def prepare(pipeline: Pipeline, slab: int, lag: int) -> None:
    learner = pipeline.learner
    learner.load(slab, lag)
    learner.proximal(slab)
    learner.targets(slab)


def log_ratio(pipeline: Pipeline) -> Tensor:
    batch = pipeline.learner.batch
    with torch.no_grad():
        output = pipeline.learner.model(batch.obs)
        return (batch.prox_neglogp - neglogp(batch.actions, output.mu, output.log_std))[batch.mask > 0]


@pytest.mark.parametrize("updates", [0, 4])
def test_ratio_is_1_on_fresh_data(updates: int) -> None:
    pipeline, slab = collected(updates=updates)
    prepare(pipeline, slab, lag=0)
    ratio = log_ratio(pipeline).exp()
    assert len(ratio) > 100 and (ratio - 1).abs().max() <= 1e-5
    assert pipeline.learner.batch.weight.unique().tolist() == [1.0]


def test_ratio_is_not_1_if_the_observation_statistics_moved() -> None:
    pipeline, slab = collected(updates=4)
    pipeline.learner.model.running_mean_std.update(torch.randn(500, 4) * 5, torch.ones(500))
    pipeline.learner.model.publish_statistics()
    prepare(pipeline, slab, lag=0)
    assert (log_ratio(pipeline).exp() - 1).abs().max() > 1e-3


def test_values_of_fresh_data_are_the_stored_ones_and_of_stale_data_the_learners() -> None:
    pipeline, slab = collected(lag=1, updates=4)
    assert slab_of(pipeline, slab).version_TN.unique().tolist() == [3]
    learner, batch = pipeline.learner, pipeline.learner.batch
    stored = slab_of(pipeline, slab).values_TN
    learner.load(slab, True)
    learner.proximal(slab)
    with torch.no_grad():
        output = learner.model(batch.obs)
        values = learner.model.value_mean_std.denormalize(output.value, torch.empty_like(output.value))
        boot = learner.model.value_mean_std.denormalize(learner.model(batch.boot_obs).value, torch.empty(32))
    assert torch.allclose(learner._values_TN[:-1], batch.time_major(values), atol=1e-6)
    assert torch.allclose(learner._values_TN[-1], boot, atol=1e-6)
    assert not torch.allclose(learner._values_TN, stored, atol=1e-3)
    assert (log_ratio(pipeline).exp() - 1).abs().max() <= 1e-5  # anchored at the proximal policy
    learner.targets(slab)
    normalized = learner.model.value_mean_std.normalize(learner._values_TN[:-1], torch.empty(8, 32))
    assert torch.equal(batch.time_major(batch.values), normalized)
    w = (batch.behaviour_neglogp - batch.prox_neglogp).exp()
    assert torch.allclose(batch.weight, w.clamp(max=2.0), atol=1e-6) and (w - 1).abs().max() > 1e-3


def test_the_behaviour_anchor_has_weight_1_and_the_behaviours_price() -> None:
    pipeline, slab = collected(lag=1, updates=4, behaviour_anchor=True)
    prepare(pipeline, slab, lag=1)
    batch = pipeline.learner.batch
    assert batch.weight.unique().tolist() == [1.0]
    view = pipeline.learner._minibatches[0]
    assert torch.equal(view.anchor_neglogp_M, batch.behaviour_neglogp[: batch.size])
    assert torch.equal(
        view.rolling_mu_MA, batch.prox_mu[: batch.size]
    )  # the rolling KL starts from the proximal policy


def test_minibatches_are_contiguous_blocks_of_envs() -> None:
    pipeline, slab = collected()
    pipeline.learner.load(slab, False)
    actions = slab_of(pipeline, slab).actions_TNA
    first = pipeline.learner._minibatches[0].actions_MA
    assert torch.equal(first, actions.transpose(0, 1)[:8].reshape(64, -1))


def test_advantages_are_standardised_over_live_rows_and_dead_rows_are_masked() -> None:
    pipeline, slab = collected(updates=4)
    source = slab_of(pipeline, slab)
    prepare(pipeline, slab, lag=0)
    batch = pipeline.learner.batch
    live = batch.mask > 0
    assert torch.equal(batch.time_major(live), source.status_TN == LIVE) and (source.status_TN == DEAD).any()
    assert float(batch.advantages[live].mean()) == pytest.approx(0.0, abs=1e-6)
    assert float(batch.advantages[live].std()) == pytest.approx(1.0, abs=1e-5)
    assert batch.advantages[~live].abs().max() == 0.0


def test_dead_and_padding_rows_do_not_reach_a_gradient() -> None:
    def trained(spoil: bool, **changes: Any) -> Tensor:
        pipeline, slab = collected(updates=3, **changes)
        source = slab_of(pipeline, slab)
        if spoil:
            dead = source.status_TN == DEAD
            assert dead.any()
            source.actions_TNA[dead] = 3.0
            source.neglogp_TN[dead] = 7.0
            source.rewards_TN[dead] = -100.0
        prepare(pipeline, slab, lag=0)
        pipeline.learner.minibatch(slab, 0, 0)
        return pipeline.learner.optimizer.grad.clone()

    assert torch.equal(trained(True), trained(False))
    padded = {"minibatch_size": 100, "minibatches": 3}  # 300 rows for 256
    assert torch.equal(trained(True, **padded), trained(False, **padded))
    assert not torch.equal(trained(False, **padded), trained(False))


def test_statistics_take_live_rows_only_and_after_the_update() -> None:
    pipeline, slab = collected()
    learner = pipeline.learner
    live = slab_of(pipeline, slab).facts().live
    before = float(learner.model.running_mean_std.count)
    prepare(pipeline, slab, lag=0)
    for epoch in range(2):
        for m in range(4):
            learner.minibatch(slab, epoch, m)
    assert float(learner.model.running_mean_std.count) == before
    learner.finish(slab)
    assert float(learner.model.running_mean_std.count) == before + live  # once, not once per mini-epoch
    assert float(learner.model.value_mean_std.count) == 1 + 2 * live  # values, then returns, as rl_games


def test_an_update_without_live_rows_leaves_the_weights_alone() -> None:
    pipeline, slab = collected(updates=2)
    learner = pipeline.learner
    slab_of(pipeline, slab).status_TN.fill_(DEAD)
    before = learner.policy.parameters.clone()
    prepare(pipeline, slab, lag=0)
    for m in range(4):
        learner.minibatch(slab, 0, m)
    assert torch.equal(learner.policy.parameters, before)
    assert learner.metrics()["loss/skipped_steps"] == 4.0


def test_an_empty_slab_makes_no_version_and_moves_nothing() -> None:
    pipeline, slab = collected(updates=2)
    learner = pipeline.learner
    before, rate = learner.policy.bytes.clone(), learner.learning_rate.value.clone()
    learner.load(slab, lag=0, empty=True)
    learner.proximal(slab)
    learner.targets(slab)
    learner.minibatch(slab, 0, 0)
    learner.finish(slab)
    assert torch.equal(learner.policy.bytes, before) and torch.equal(learner.learning_rate.value, rate)
    assert learner.version == 2


def test_a_batch_that_only_the_device_knows_to_be_empty_makes_no_version_and_moves_nothing() -> None:
    pipeline, slab = collected(updates=2)
    learner = pipeline.learner
    slab_of(pipeline, slab).status_TN.fill_(DEAD)
    learner.learning_rate.value.fill_(1e-4)
    before, rate = learner.policy.bytes.clone(), learner.learning_rate.value.clone()
    accounts = {name: x.clone() for name, x in learner.model.state_dict().items()}
    prepare(pipeline, slab, lag=0)
    for epoch in range(2):
        for m in range(4):
            learner.minibatch(slab, epoch, m)
    assert not torch.equal(learner.learning_rate.value, rate)  # a KL of 0 raises it
    learner.finish(slab)
    assert torch.equal(learner.policy.bytes, before) and torch.equal(learner.learning_rate.value, rate)
    assert all(torch.equal(x, accounts[name]) for name, x in learner.model.state_dict().items())
    metrics = learner.metrics()
    assert metrics["loss/skipped_steps"] == 0.0 == metrics["losses/entropy"] == metrics["kl/prox"]


def test_shuffling_keeps_the_targets_of_every_row_and_depends_on_the_seed() -> None:
    def rows(shuffle: bool, seed: int) -> Tensor:
        pipeline, slab = collected(shuffle=shuffle, seed=seed, minibatch_size=100, minibatches=3)
        prepare(pipeline, slab, lag=0)
        for m in range(3):
            pipeline.learner.minibatch(slab, 0, m)
        batch = pipeline.learner.batch
        return torch.stack([batch.actions[:, 0], batch.returns, batch.advantages, batch.mask], -1)

    plain, shuffled, other = rows(False, 3), rows(True, 3), rows(True, 4)
    assert not torch.equal(plain, shuffled) and not torch.equal(shuffled, other)
    assert sorted(map(tuple, plain.tolist())) == sorted(map(tuple, shuffled.tolist()))


def test_padding_stays_masked_when_a_shuffled_batch_is_loaded_again() -> None:
    pipeline, slab = collected(shuffle=True, minibatch_size=100, minibatches=3)
    for _ in range(2):
        prepare(pipeline, slab, lag=0)
        assert float(pipeline.learner.batch.mask.sum()) == slab_of(pipeline, slab).facts().live
        pipeline.learner.minibatch(slab, 0, 0)


def test_reported_drift_is_the_kl_from_the_proximal_and_the_behaviour_policy() -> None:
    pipeline, slab = collected(lag=1, updates=4)
    prepare(pipeline, slab, lag=1)
    for epoch in range(2):
        for m in range(4):
            pipeline.learner.minibatch(slab, epoch, m)
    metrics = pipeline.learner.metrics()
    assert 0 < metrics["kl/prox"] < metrics["kl/behaviour"]


@pytest.mark.parametrize(
    ("lag", "distance", "expected"),
    [
        (0, 0.5, 1.5),  # on fresh data the rolling KL alone counts: none of it yet, so the rate rises
        (1, 0.3, 1.0),  # KL from the behaviour policy 0.3^2 / 2 = 0.045, a quarter of it within [0.5, 2] x 0.008
        (1, 0.4, 1 / 1.5),  # 0.08 / 4: above
        (4, 0.7, 1.0),  # 0.245 / 25: a greater distance is nothing out of the way at lag 4
        (4, 0.4, 1.5),  # 0.08 / 25: below
    ],
)
def test_drift_from_the_behaviour_policy_slows_the_rate_by_the_lag(lag: int, distance: float, expected: float) -> None:
    pipeline, slab = collected(updates=4)
    prepare(pipeline, slab, lag)
    b, rate = pipeline.learner.batch, pipeline.learner.learning_rate
    assert rate.settings.kl_threshold == 0.008 and rate.settings.schedule == "adaptive"
    with torch.no_grad():
        output = pipeline.learner.model(b.obs)
        for policy in ((b.rolling_mu, b.rolling_sigma), (b.behaviour_mu, b.behaviour_sigma)):
            policy[0].copy_(output.mu)
            policy[1].copy_(output.log_std.exp())
        b.behaviour_mu.add_(distance * b.behaviour_sigma)  # KL of Gaussians of one sigma: d^2 / (2 sigma^2)
    rate.value.fill_(3e-4)
    pipeline.learner.minibatch(slab, 0, 0)
    assert float(rate.value) == pytest.approx(3e-4 * expected, rel=1e-6)


def test_on_fresh_data_the_rate_does_not_hear_of_a_drift_that_is_not_finite() -> None:
    pipeline, slab = collected(updates=4)
    prepare(pipeline, slab, lag=0)
    b, rate = pipeline.learner.batch, pipeline.learner.learning_rate
    with torch.no_grad():
        output = pipeline.learner.model(b.obs)
        b.rolling_mu.copy_(output.mu)
        b.rolling_sigma.copy_(output.log_std.exp())
        b.behaviour_mu.fill_(1e30)  # its square is infinite
    rate.value.fill_(3e-4)
    pipeline.learner.minibatch(slab, 0, 0)
    assert float(rate.value) == pytest.approx(4.5e-4, rel=1e-6)
