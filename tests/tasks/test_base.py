from __future__ import annotations

import math

import pytest
import torch

from isaac_appo.env.task_env import make_env
from isaac_appo.kernels import wp
from isaac_appo.sim.engine import EngineError
from isaac_appo.tasks.ant import Ant
from isaac_appo.tasks.registry import make_task, resolve_env_cfg


def test_a_reset_draws_dofs_evenly_around_the_start_inside_the_limits() -> None:
    env = make_env("Ant", {}, num_envs=4000)
    env.reset()
    engine = env.engine
    hips = engine.dof_pos[:, 0::2]
    ankles = (engine.dof_pos[:, 1::2] - engine.initial_dof_pos[1::2]).abs()
    assert 0.199 < hips.abs().max() <= 0.2
    assert hips.mean().abs() < 5 * 0.2 / math.sqrt(3 * 16000)  # five standard deviations of U(-0.2, 0.2)
    # the ankles start at a limit: half of the draws fall outside and stay there
    assert 0.199 < ankles.max() <= 0.2 + 1e-6
    torch.testing.assert_close((ankles == 0).float().mean(), torch.tensor(0.5), atol=0.02, rtol=0)
    assert 0.0999 < engine.dof_vel.abs().max() <= 0.1
    assert abs(torch.corrcoef(torch.cat([hips, engine.dof_vel], 1).T).fill_diagonal_(0)).max() < 0.1
    assert torch.equal(engine.root_pos, engine.initial_root_pos.expand(4000, 1, 3))
    assert not engine.root_ang_vel.any()


def test_a_reset_leaves_the_other_rows_alone() -> None:
    env = make_env("Ant", {}, num_envs=6)
    env.reset()
    for _ in range(10):
        env.step(torch.ones(6, 8))
    before = env.engine.state_dict()
    mask = torch.tensor([True, False, False, True, False, False])
    env.task.fresh.copy_(mask)
    env.task.reset(wp.array([99], dtype=wp.int64, device="cpu"))
    after = env.engine.state_dict()
    for key in ("state", "root_pos", "root_lin_vel", "dof_pos", "dof_vel", "site_wrench"):
        assert torch.equal(after[key][~mask], before[key][~mask])
        assert not torch.equal(after[key][mask], before[key][mask])


def test_a_model_with_other_dofs_is_refused() -> None:
    engine = make_env("Cartpole", {}, num_envs=1).engine
    with pytest.raises(EngineError, match="task Ant expects the dofs"):
        make_task("Ant", {}, engine, 0)
    with pytest.raises(EngineError, match="slider_to_cart"):
        Ant(engine, resolve_env_cfg("Ant", {}), 0)
