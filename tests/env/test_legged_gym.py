"""legged_gym's 5-tuple, its stale time-outs, and the trainer around an env that was made elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.commands.compose import compose
from isaac_appo.env.legged_gym import LeggedGymEnv
from isaac_appo.report.reporter import Reporter
from isaac_appo.report.run_dir import RunDir
from isaac_appo.trainer import Trainer
from tests.env.chain import collect, targets


class Walker:
    """Env 0 runs into its time-out at age 4, env 1 falls at `x = 3`; `x` counts steps, a step pays 10.

    As in legged_gym, `extras["time_outs"]` is written where envs are reset, and in no other step.
    """

    num_envs, num_obs, num_privileged_obs, num_actions = 2, 2, 3, 1
    device, max_episode_length = "cpu", 4

    def __init__(self, num_envs: int = 2) -> None:
        self.num_envs = num_envs
        self.x, self.ids = torch.zeros(num_envs), torch.arange(num_envs, dtype=torch.float32)
        self.episode_length_buf = torch.zeros(num_envs, dtype=torch.long)
        self.extras: Dict[str, Any] = {}
        self.time_out_buf = torch.zeros(num_envs, dtype=torch.bool)

    def step(self, actions: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor, Dict[str, Any]]:
        self.x += 1.0
        self.episode_length_buf += 1
        self.time_out_buf = self.episode_length_buf >= self.max_episode_length
        self.reset_buf = self.time_out_buf | ((self.ids % 2 == 1) & (self.x >= 3))
        self.reset_idx(self.reset_buf.nonzero(as_tuple=False).flatten())
        obs = torch.stack([self.x, self.ids], dim=1)
        states = torch.cat([100 * obs, self.episode_length_buf[:, None].float()], dim=1)
        return obs, states, torch.full((self.num_envs,), 10.0), self.reset_buf, self.extras

    def reset_idx(self, env_ids: Tensor) -> None:
        if len(env_ids) == 0:
            return
        self.x[env_ids] = 0.0
        self.episode_length_buf[env_ids] = 0
        self.extras["time_outs"] = self.time_out_buf


def test_a_time_out_counts_only_beside_done() -> None:
    walker = Walker()
    env = LeggedGymEnv(walker, stagger=False)
    env.reset()
    ends, told = [], []
    for _ in range(7):
        _, _, terminated, truncated = env.step(torch.zeros(2, 1))
        ends.append((terminated.tolist(), truncated.tolist()))
        told.append(walker.extras["time_outs"].tolist())
    nothing, fall, out = (
        ([False, False], [False, False]),
        ([False, True], [False, False]),
        ([False, False], [True, False]),
    )
    assert ends == [nothing, fall, out, nothing, fall, nothing, out]
    assert told[3] == [True, False]  # of the step before: env 0 has just begun
    assert env.states is not None and env.states.tolist() == [[0.0, 0.0, 0.0], [200.0, 100.0, 2.0]]


def test_rows_and_bootstraps() -> None:
    slab, collector = collect(LeggedGymEnv(Walker(), stagger=False))
    assert slab.obs_TNO[:, 0, 0].tolist() == [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3]
    assert not slab.status_TN.any() and torch.nonzero(slab.truncated_TN[:, 0]).flatten().tolist() == [2, 6]
    returns = targets(slab, stale=False)
    assert [float(returns[t, 0]) for t in (0, 2, 3)] == [34.0, 14.0, 44.0]  # 10 and V(3) = 4
    collector.env.check()


def test_first_episodes_are_staggered_once() -> None:
    torch.manual_seed(0)
    walker = Walker(num_envs=64)
    env = LeggedGymEnv(walker)
    env.reset()
    assert walker.episode_length_buf.unique().tolist() == [0, 1, 2, 3]
    env.reset()
    assert walker.episode_length_buf.unique().tolist() == [1]


def test_the_trainer_takes_an_env_that_was_made_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = "task=Cartpole num_envs=8 max_iterations=2 schedule.policy_threads=1 schedule.learner_threads=1"
    config = compose([*words.split(), "train.params.config.minibatch_size=64"]).config
    run_dir = RunDir.create(str(tmp_path), "anymal_c_flat", "", config.seed)
    run_dir.prepare("never")
    with Reporter(run_dir, 2 * 8 * 16, 2, "plain", 1.0, False, "anymal_c_flat") as reporter:
        trainer = Trainer(config, run_dir, reporter, envs=[LeggedGymEnv(Walker(num_envs=8))])
        trainer.run()
        assert trainer.evaluate().episodes == 8
        trainer.close()
    run_dir.close("complete", 0)
    assert trainer.updates == 2 and trainer.pipeline.ledger.totals()["masked_dead"] == 0
    assert "Walker: autoreset same_step" in capsys.readouterr().out
