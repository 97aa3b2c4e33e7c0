from __future__ import annotations

import math

import pytest
import torch

from isaac_appo.env.task_env import make_env
from isaac_appo.tasks.cartpole import balance_reward, out_of_bounds


def test_the_reward_is_one_less_what_moves() -> None:
    assert balance_reward(0.0, 0.0, 0.0) == 1.0
    assert balance_reward(-2.0, 0.5, 4.0) == pytest.approx(1.0 - 0.25 - 0.02 - 0.02)


@pytest.mark.parametrize(
    ("cart", "angle", "lost"),
    [
        (0.0, 0.0, False),
        (3.0, 1.57, False),
        (3.01, 0.0, True),
        (-3.01, 0.0, True),
        (0.0, 1.58, True),
        (0.0, -1.58, True),
    ],
)
def test_the_bounds(cart: float, angle: float, lost: bool) -> None:
    assert out_of_bounds(cart, angle, 3.0) is lost


def test_the_kernel_agrees_with_a_float64_reference() -> None:
    env = make_env("Cartpole", {}, num_envs=512)
    generator = torch.Generator().manual_seed(0)
    env.engine.dof_pos.copy_(torch.randn(512, 2, generator=generator) * 2.0)
    env.engine.dof_vel.copy_(torch.randn(512, 2, generator=generator) * 5.0)
    env.engine.dof_pos[:3] = torch.tensor([[3.0, 0.0], [0.0, 1.57], [-3.0, -1.57]])  # just inside
    env.task.observe()
    x, angle = env.engine.dof_pos.double().unbind(-1)
    v, spin = env.engine.dof_vel.double().unbind(-1)
    lost = (x.abs() > 3.0) | (angle.abs() > math.pi / 2)
    reward = torch.where(lost, -2.0, 1.0 - angle**2 - 0.01 * v.abs() - 0.005 * spin.abs())
    assert torch.equal(env.obs.double(), torch.stack([x, v, angle, spin], -1))
    assert torch.equal(env.terminated, lost)
    assert 0 < lost.sum() < 512
    torch.testing.assert_close(env.reward.double(), reward, atol=1e-5, rtol=1e-5)


def test_a_full_action_is_max_effort_newtons_on_the_cart() -> None:
    env = make_env("Cartpole", {"maxEffort": 10.0}, num_envs=1)
    env.reset()
    env.task.apply(torch.tensor([[0.5]]))
    assert env.task.efforts.tolist() == [[5.0, 0.0]]


def test_an_upright_pole_falls_and_a_push_to_the_right_tips_it_to_the_left() -> None:
    env = make_env("Cartpole", {}, num_envs=2)
    env.reset()
    env.engine.dof_pos.copy_(torch.tensor([[0.0, 0.05], [0.0, 0.0]]))
    env.engine.dof_vel.zero_()
    env.engine.reset(torch.ones(2, dtype=torch.bool))
    for _ in range(20):
        env.step(torch.tensor([[0.0], [0.05]]))
    # a box 2 m long with its centre 1.47 m from the hinge, on a free 1 kg cart: the angle grows like cosh(w t)
    inertia = 1 / 12 * (2.0**2 + 0.06**2)
    w = math.sqrt(9.81 * 1.47 / (inertia + 1.47**2 - 1.47**2 / 2))
    assert env.obs[0, 2].item() == pytest.approx(0.05 * math.cosh(w * 20 * 0.0166), rel=0.02)
    assert env.obs[1, 0] > 0  # the push moves the cart along +y, and a positive angle about x is towards -y
    assert env.obs[1, 2] > 0
