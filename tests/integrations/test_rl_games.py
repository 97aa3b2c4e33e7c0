"""rl_games on our environments: the adapter says what the environment says, and rl_games trains on it."""

from __future__ import annotations

from typing import Any, Dict, Iterator, List

import pytest
import torch

from isaac_appo.bench.problem import rl_games_params
from isaac_appo.build import build_env
from isaac_appo.commands.compose import compose
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.integrations import rl_games
from isaac_appo.integrations.rl_games import AlgoObserver, EndRun, RlGamesEnv
from tests.helpers import ScriptedEnv

CONFIG = compose(
    [
        "task=Cartpole", "num_envs=16", "task.env.episodeLength=11", "train.params.config.horizon_length=8",
        "train.params.config.minibatch_size=64", "train.params.network.mlp.units=[8]",
    ],
    "bench",
).config  # fmt: skip


@pytest.fixture
def env() -> Iterator[TaskEnv]:
    env = build_env(CONFIG, 16, 3, True, 1)
    yield env
    env.close()


class Watch(AlgoObserver):
    """Keeps the agent and its weights after each epoch, and ends the run when told."""

    def __init__(self, end_after: int = 10**6) -> None:
        super().__init__()
        self.weights: List[torch.Tensor] = []
        self.infos: List[Dict[str, Any]] = []
        self.end_after = end_after

    def after_init(self, algo: Any) -> None:
        self.algo = algo

    def process_infos(self, infos: Any, done_indices: Any) -> None:
        self.infos.append(infos)

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
        self.weights.append(self.algo.model.a2c_network.mu.weight.detach().clone())
        if epoch_num == self.end_after:
            raise EndRun


def test_the_adapter_gives_what_the_environment_gives(env: TaskEnv) -> None:
    twin, adapter = build_env(CONFIG, 16, 3, True, 1), RlGamesEnv(env)
    assert torch.equal(adapter.reset()["obs"], twin.reset())
    generator, ends = torch.Generator().manual_seed(0), 0
    for _ in range(30):
        actions = torch.rand(16, 1, generator=generator) * 2 - 1
        obs, reward, done, infos = adapter.step(actions)
        expected, expected_reward, terminated, truncated = twin.step(actions)
        assert torch.equal(obs["obs"], expected) and torch.equal(reward, expected_reward)
        assert torch.equal(done, terminated | truncated) and torch.equal(infos["time_outs"], truncated)
        ends += int(truncated.sum())
    assert ends > 16
    twin.close()


def test_time_outs_are_not_the_terminated() -> None:
    adapter = RlGamesEnv(ScriptedEnv(3, {(0, 0): "terminated", (0, 1): "truncated"}))
    adapter.reset()
    _, reward, done, infos = adapter.step(torch.zeros(3, 2))
    assert done.tolist() == [True, True, False] and infos["time_outs"].tolist() == [False, True, False]
    _, reward, done, infos = adapter.step(torch.zeros(3, 2))
    assert done.tolist() == [False] * 3 and not infos["time_outs"].any() and reward.tolist() == [0.0, 0.0, 1.0]


def test_spaces_are_those_of_the_environment_and_actions_within_one(env: TaskEnv) -> None:
    info = RlGamesEnv(env).get_env_info()
    assert info["observation_space"].shape == (env.num_obs,) and info["action_space"].shape == (1,)
    assert info["action_space"].low.item() == -1.0 and info["action_space"].high.item() == 1.0


def test_rl_games_trains_two_epochs_quietly(env: TaskEnv, capfd: pytest.CaptureFixture[str]) -> None:
    settings = (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)
    watch = Watch()
    rl_games.train(rl_games_params(CONFIG, 64), RlGamesEnv(env), 2, 1, watch)
    assert len(watch.weights) == 2 and not torch.equal(*watch.weights)
    assert watch.algo.epoch_num == 2 and watch.algo.frame == 2 * 16 * 8 and env.steps == 1 + 2 * 8
    assert len(watch.infos) == 16 and watch.infos[0]["time_outs"] is env.truncated
    assert capfd.readouterr().out == ""
    after = (torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark)
    assert settings == after


def test_settings_are_ours(env: TaskEnv) -> None:
    watch = Watch(end_after=1)
    rl_games.train(rl_games_params(CONFIG, 64), RlGamesEnv(env), 100, 1, watch)
    algo, ppo = watch.algo, CONFIG.ppo
    assert algo.epoch_num == 1  # EndRun ended it
    assert (algo.horizon_length, algo.minibatch_size, algo.mini_epochs_num) == (8, 64, ppo.mini_epochs)
    assert (algo.gamma, algo.tau, algo.e_clip, algo.critic_coef) == (ppo.gamma, ppo.tau, ppo.e_clip, ppo.critic_coef)
    assert algo.rewards_shaper.scale_value == ppo.reward_shaper.scale_value and algo.is_adaptive_lr
    assert (algo.normalize_input, algo.normalize_value) == (ppo.normalize_input, ppo.normalize_value)
    assert [m.out_features for m in algo.model.a2c_network.actor_mlp if hasattr(m, "out_features")] == [8]


def test_runner_settings_are_put_back() -> None:
    before = torch.get_num_threads()
    with rl_games.torch_settings_kept():
        torch.set_num_threads(before + 1)
        torch.set_float32_matmul_precision("high")
        torch.backends.cudnn.benchmark = True
    assert torch.get_num_threads() == before and torch.get_float32_matmul_precision() == "highest"
    assert torch.backends.cudnn.benchmark is False


def test_a_failure_names_rl_games_and_keeps_its_cause(env: TaskEnv) -> None:
    params = rl_games_params(CONFIG, 64)
    params["config"]["minibatch_size"] = 63
    with pytest.raises(RuntimeError, match="rl_games failed: ValueError") as caught:
        rl_games.train(params, RlGamesEnv(env), 1, 1)
    assert isinstance(caught.value.__cause__, ValueError) and "must be divisible" in str(caught.value)


def test_a_registered_environment_is_found_by_name(env: TaskEnv) -> None:
    from rl_games.common import vecenv

    given: List[Dict[str, Any]] = []

    def create(**config: Any) -> TaskEnv:
        given.append(config)
        return env

    rl_games.register("ours", create)
    made = vecenv.create_vec_env("ours", 16, seed=5)
    assert isinstance(made, RlGamesEnv) and made.env is env and given == [{"seed": 5}]
