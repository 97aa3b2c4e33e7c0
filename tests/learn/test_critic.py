"""The asymmetric critic: whose values count, that rl_games reads it, that it learns, and that it is saved."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import pytest
import torch
from rl_games.algos_torch.central_value import CentralValueTrain
from rl_games.algos_torch.model_builder import ModelBuilder
from torch import Tensor

from isaac_appo.env.vec_env import Space
from isaac_appo.learn.critic import CriticSettings
from isaac_appo.learn.learning_rate import LearningRateSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.central_value import CentralValue
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.schedule.program import Lockstep
from tests.helpers import NETWORK, ScriptedEnv, learner_settings, pipeline_settings

CRITIC_NETWORK = {"name": "actor_critic", "central_value": True, "mlp": NETWORK["mlp"]}
RATE = LearningRateSettings(1e-2, "constant", False, 0.008, 1e-6, 1e-2, 100)
CRITIC = CriticSettings(RATE, e_clip=0.2, clip_value=False, max_grad_norm=1.0, weight_decay=0.0)


class AsymmetricEnv(ScriptedEnv):
    """The state is `[age, 5 age, env, 7]`, and tells what the reward will be."""

    def __init__(self, num_envs: int = 8) -> None:
        super().__init__(num_envs, {(step, env): "truncated" for step in range(3, 400, 4) for env in range(num_envs)})
        self.spaces["states"] = Space((4,), -100.0, 100.0)
        self.states = torch.zeros(num_envs, 4)

    def reset(self) -> Tensor:
        return self._look(super().reset())

    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        obs, *rest = super().step(actions_NA)
        return (self._look(obs), *rest)  # type: ignore[return-value]

    def _look(self, obs: Tensor) -> Tensor:
        assert self.states is not None
        self.states[:, 0], self.states[:, 1], self.states[:, 2] = obs[:, 0], 5.0 * obs[:, 0], obs[:, 1]
        self.states[:, 3] = 7.0
        return obs


def make_model() -> ActorCritic:
    torch.manual_seed(0)
    return ActorCritic(NETWORK, 3, 2, True, True, CentralValue(CRITIC_NETWORK, 4, 2, True, True))


def pipeline(updates: int = 2, lag: int = 0, **changes: Any) -> Pipeline:
    settings = learner_settings(minibatch_size=32, minibatches=2, critic=CRITIC, **changes)
    program = Lockstep(horizon=8, epochs=2, minibatches=2, num_updates=updates, lag=lag)
    return Pipeline([AsymmetricEnv()], make_model, program, pipeline_settings(), settings)


def test_the_values_of_a_slab_are_the_critics() -> None:
    p = pipeline()
    p.run()
    slab, acting = p.workers[0].slabs[0], p.workers[0].collector.model
    critic = acting.central_value
    assert critic is not None and slab.states_TNS is not None
    assert slab.states_TNS[:, 3, 0].tolist() == slab.obs_TNO[:, 3, 0].tolist()
    with torch.no_grad():
        for t in range(9):
            value = critic(critic.normalized(slab.states_TNS[t]))
            assert torch.equal(critic.value_mean_std.denormalize(value, value), slab.values_TN[t])
    assert slab.status_TN.any()  # dead rows there are, and the critic's normaliser has not seen them
    trained = p.learner.model
    assert trained.central_value is not None
    assert trained.central_value.running_mean_std.count == trained.running_mean_std.count


def test_stale_rows_are_valued_by_the_critic_as_it_is_now() -> None:
    p = pipeline()
    p.run()
    learner, slab = p.learner, p.workers[0].slabs[0]
    critic = learner.model.central_value
    learner.load(0, lag=1)
    learner.proximal(0)
    assert critic is not None and slab.states_TNS is not None
    with torch.no_grad():
        value = critic(critic.normalized(slab.states_TNS.flatten(0, 1)))
        expected = critic.value_mean_std.denormalize(value, value).view(9, 8)
    assert torch.allclose(learner._values_TN, expected, atol=1e-5)
    assert not torch.allclose(learner._values_TN, slab.values_TN)


def test_a_version_holds_the_critic() -> None:
    p = pipeline()
    p.run()
    first = make_model().central_value
    trained = p.learner.model.central_value
    assert first is not None and trained is not None
    assert not torch.equal(first.a2c_network.value.weight, trained.a2c_network.value.weight)
    p.ring.adopt(p.workers[0].policy, p.program.slot(p.program.newest_snapshot(2)))
    acting = p.workers[0].collector.model.central_value
    assert acting is not None
    for name, tensor in trained.named_parameters():
        assert torch.equal(dict(acting.named_parameters())[name], tensor), name
    assert torch.equal(acting.running_mean_std.mean, trained.running_mean_std.mean)


@pytest.mark.parametrize("lag", [0, 1])
def test_it_learns_what_only_the_state_tells(lag: int) -> None:
    p = pipeline(updates=30, lag=lag)
    seen = []
    p._on_boundary = lambda report: seen.append(report.metrics)
    p.run()
    assert seen[-1]["losses/cval_loss"] < 0.2 * seen[0]["losses/cval_loss"]
    assert seen[-1]["loss/explained_variance"] > 0.8
    assert seen[-1]["info/cval_lr"] == pytest.approx(1e-2)


def test_rl_games_reads_it_and_values_the_same() -> None:
    p = pipeline()
    p.run()
    saved = p.learner.state_dict()
    config = {"network": CRITIC_NETWORK, "model": {"name": "central_value"}}
    config.update({"normalize_input": True, "learning_rate": 1e-3, "mini_epochs": 1, "minibatch_size": 32})
    theirs = CentralValueTrain(
        (4,), 1, "cpu", 1, 8, 8, 2, 4, True, ModelBuilder().load(config), {**config, "clip_value": True}, None, 1,
        False, True,
    )  # fmt: skip
    theirs.load_state_dict(saved["assymetric_vf_nets"], strict=True)
    states = torch.randn(16, 4) * 5.0
    critic = p.learner.model.central_value
    assert critic is not None
    with torch.no_grad():
        value = critic(critic.normalized(states))
        ours = critic.value_mean_std.denormalize(value, value)
        assert torch.allclose(theirs.get_value({"states": states.clone()})[:, 0], ours, atol=1e-5)
    assert set(saved["assymetric_vf_optimizer"]["state"]) == set(range(len(list(critic.parameters()))))


def test_saved_and_loaded_it_goes_on_the_same() -> None:
    first, second = pipeline(), pipeline()
    first.run()
    second.learner.load_state_dict(first.learner.state_dict())
    for mine, other in zip(first.workers[0].slabs[0].tensors().values(), second.workers[0].slabs[0].tensors().values()):
        other.copy_(mine)
    after: Dict[int, Tensor] = {}
    for number, learner in enumerate((first.learner, second.learner)):
        learner.load(0, lag=1)
        learner.proximal(0)
        learner.targets(0)
        for index in (0, 1):
            learner.minibatch(2, 0, index)
        after[number] = learner.policy.parameters.clone()
    assert torch.equal(after[0], after[1]) and not torch.equal(after[0][-20:], make_model_parameters()[-20:])


def make_model_parameters() -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in make_model().parameters()])


def test_its_gradient_leaves_the_policy_alone() -> None:
    def trained(critic: CriticSettings) -> ActorCritic:
        settings = learner_settings(minibatch_size=32, minibatches=2, critic=critic)
        program = Lockstep(horizon=8, epochs=2, minibatches=2, num_updates=1, lag=0)
        p = Pipeline([AsymmetricEnv()], make_model, program, pipeline_settings(), settings)
        p.run()
        return p.learner.model

    slow, fast = trained(CRITIC._replace(learning_rate=RATE._replace(initial=1e-5))), trained(CRITIC)
    assert torch.equal(slow.a2c_network.mu.weight, fast.a2c_network.mu.weight)
    assert slow.central_value is not None and fast.central_value is not None
    assert not torch.equal(slow.central_value.a2c_network.value.weight, fast.central_value.a2c_network.value.weight)
