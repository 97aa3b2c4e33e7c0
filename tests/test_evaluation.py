"""Evaluation counts the first episode of each env, once, with the mean action."""

from __future__ import annotations

import pytest
import torch

from isaac_appo.env.task_env import make_env
from isaac_appo.evaluation import evaluate
from tests.helpers import ScriptedEnv, make_model


def test_only_the_first_episode_of_each_env_counts_and_each_env_counts_once() -> None:
    # env 0 ends after 3 steps and would start a second episode; env 1 after 10; env 2 by the time limit
    env = ScriptedEnv(3, {(2, 0): "terminated", (9, 1): "truncated", (11, 2): "truncated"}, reward=2.0)
    env.max_episode_length = 12
    result = evaluate(make_model(3, 2), env, seed=5)
    assert (result.low, result.high, result.episodes, result.seed) == (6.0, 24.0, 3, 5)
    assert result.mean == pytest.approx((6 + 20 + 24) / 3) and result.mean_length == pytest.approx(25 / 3)
    assert result.std == pytest.approx(float(torch.tensor([6.0, 20.0, 24.0]).std(unbiased=False)))


def test_the_action_is_the_clipped_mean() -> None:
    env, model = ScriptedEnv(2, {(3, 0): "terminated", (3, 1): "terminated"}), make_model(3, 2)
    with torch.no_grad():
        model.a2c_network.mu.bias.copy_(torch.tensor([5.0, 0.1]))
    env.max_episode_length = 3
    evaluate(model, env, seed=0)
    assert all((actions[:, 0] == 1.0).all() and (actions[:, 1].abs() < 1.0).all() for actions in env.seen)
    env.seen.clear()
    evaluate(model, env, seed=0, clip_actions=False)
    assert (env.seen[0][:, 0] > 1.0).all()


def test_same_seed_same_result_and_another_seed_differs() -> None:
    def returns(seed: int) -> float:
        return evaluate(make_model(4, 1), make_env("Cartpole", {}, num_envs=16, seed=seed), seed).mean

    assert returns(1) == returns(1) != returns(2)


def test_statistics_are_not_touched() -> None:
    model = make_model(4, 1)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    evaluate(model, make_env("Cartpole", {}, num_envs=4, seed=1), 1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())
