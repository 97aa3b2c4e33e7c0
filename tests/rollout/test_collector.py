"""Rows, versions, dead rows, broken rows and episode accounts, with a scripted env."""

from __future__ import annotations

from typing import Dict, Tuple

import torch

from isaac_appo.policy.snapshot import PolicyBuffer, SnapshotRing
from isaac_appo.rollout.collector import Collector
from isaac_appo.rollout.slab import DEAD, LIVE, NAN, Slab
from tests.helpers import ScriptedEnv, make_model

HORIZON, ENVS = 6, 3


def collector(ends: Dict[Tuple[int, int], str], seed: int = 1, slabs: int = 1) -> Collector:
    env = ScriptedEnv(ENVS, ends)
    model = make_model(3, 2)
    ring = [Slab(HORIZON, ENVS, 3, 2, torch.device("cpu")) for _ in range(slabs)]
    return Collector(env, model, PolicyBuffer(model), ring, seed, clip_actions=True)


def fill(c: Collector, slab: int = 0) -> Slab:
    for t in range(HORIZON):
        c.act(slab, t)
        c.step(slab, t)
    c.bootstrap(slab)
    return c.slabs[slab % len(c.slabs)]


def test_rows_hold_the_observation_the_action_was_chosen_from() -> None:
    slab = fill(collector({(2, 1): "truncated"}))
    assert slab.obs_TNO[:, 0, 0].tolist() == [0, 1, 2, 3, 4, 5, 6]
    # the observation returned with done is the true last one; the next row is dead and the episode starts after it
    assert slab.obs_TNO[:, 1, 0].tolist() == [0, 1, 2, 3, 0, 1, 2]
    assert slab.status_TN[:, 1].tolist() == [LIVE, LIVE, LIVE, DEAD, LIVE, LIVE]
    assert slab.truncated_TN[:, 1].tolist() == [False, False, True, False, False, False]
    assert slab.rewards_TN[:, 1].tolist() == [1, 1, 1, 0, 1, 1]


def test_values_and_actions_are_the_policys() -> None:
    c = collector({})
    slab = fill(c)
    normalizer = c.model.running_mean_std
    with torch.no_grad():
        for t in range(HORIZON + 1):
            obs = slab.obs_TNO[t]
            output = c.model(normalizer.normalize(obs, torch.empty_like(obs)))
            value = c.model.value_mean_std.denormalize(output.value, torch.empty(ENVS))
            assert torch.equal(slab.values_TN[t], value)
            if t < HORIZON:
                assert torch.equal(slab.mu_TNA[t], output.mu)
    assert isinstance(c.env, ScriptedEnv)
    assert torch.equal(torch.stack(c.env.seen), slab.actions_TNA.clamp(-1, 1))
    assert (slab.actions_TNA.abs() > 1).any()  # stored unclipped


def test_every_row_carries_the_version_it_was_acted_with() -> None:
    c = collector({}, slabs=2)
    learner = make_model(3, 2, seed=9)
    published = PolicyBuffer(learner)
    ring = SnapshotRing(published, 2)
    published.version.fill_(4)
    ring.publish(published, 0)
    assert fill(c, 0).version_TN.unique().tolist() == [-1]
    ring.adopt(c.policy, 0)
    assert fill(c, 1).version_TN.unique().tolist() == [4]
    assert c.slabs[0].version_TN.unique().tolist() == [-1]
    assert torch.equal(c.model.a2c_network.mu.weight, learner.a2c_network.mu.weight)


def test_episodes_cross_slabs_and_are_counted_once_without_dead_rows() -> None:
    c = collector({(1, 0): "terminated", (8, 0): "truncated", (4, 2): "terminated"}, slabs=2)
    first, second = fill(c, 0), fill(c, 1)
    assert first.finished_episodes() == [(2.0, 2), (5.0, 5)]
    # env 0: steps 0-1, dead step 2, steps 3..8: six live steps
    assert second.finished_episodes() == [(6.0, 6)]


def test_a_done_in_the_last_row_makes_the_first_row_of_the_next_slab_dead() -> None:
    c = collector({(HORIZON - 1, 1): "terminated"}, slabs=2)
    fill(c, 0)
    assert fill(c, 1).status_TN[0].tolist() == [LIVE, DEAD, LIVE]


def test_a_broken_row_is_marked_ends_the_episode_and_is_in_no_statistic() -> None:
    c = collector({(2, 1): "invalid", (4, 1): "terminated"})
    slab = fill(c)
    assert slab.status_TN[:, 1].tolist() == [LIVE, LIVE, NAN, DEAD, LIVE, DEAD]
    assert slab.finished_episodes() == [(1.0, 1)]
    facts = slab.facts()
    assert (facts.live, facts.dead, facts.nan, facts.rows) == (15, 2, 1, 18)


def test_noise_depends_on_seed_and_continues_from_a_cut() -> None:
    straight = collector({(2, 0): "truncated"}, slabs=2)
    fill(straight, 0)
    cut = straight.state_dict()
    expected = fill(straight, 1).state_dict()
    assert not torch.equal(straight.slabs[0].actions_TNA, straight.slabs[1].actions_TNA)
    resumed = collector({(2, 0): "truncated"}, slabs=2)
    resumed.load_state_dict(cut)
    again = fill(resumed, 1).state_dict()
    assert all(torch.equal(again[name], expected[name]) for name in expected)
    other = collector({}, seed=2)
    assert not torch.equal(fill(other, 0).actions_TNA, fill(collector({}), 0).actions_TNA)
