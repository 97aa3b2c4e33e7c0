from __future__ import annotations

import math
from typing import Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.env.task_env import TaskEnv, make_env
from isaac_appo.kernels import wp
from isaac_appo.tasks.ant import heading_reward, progress_reward, roll_of, unscale, up_reward, wrap_two_pi, yaw_of

DT, TARGET = 0.0166, 1000.0
N = 512


def _about(axis: str, degrees: float) -> wp.quat:
    half = math.radians(degrees) / 2
    part = [math.sin(half) if name == axis else 0.0 for name in "xyz"]
    return wp.quat(*part, math.cos(half))


def test_progress_is_speed_towards_the_target() -> None:
    assert progress_reward(wp.vec2(0.0, 0.0), wp.vec2(0.0166, 0.0), 0.0166) == pytest.approx(1.0)
    assert progress_reward(wp.vec2(5.0, 0.0), wp.vec2(4.9668, 0.0), 0.0166) == pytest.approx(-2.0, rel=1e-4)
    # from (1000, 3) to (1000, 4): one metre further from (1000, 0)
    assert progress_reward(wp.vec2(1000.0, 3.0), wp.vec2(1000.0, 4.0), 0.5) == pytest.approx(-2.0)


def test_heading_counts_in_full_above_four_fifths() -> None:
    assert heading_reward(0.9, 0.5) == 0.5
    assert heading_reward(0.4, 0.5) == pytest.approx(0.25)
    assert heading_reward(-0.8, 0.5) == pytest.approx(-0.5)


def test_up_counts_above_its_threshold_only() -> None:
    assert up_reward(0.94, 0.1) == 0.1
    assert up_reward(0.92, 0.1) == 0.0


def test_unscale_maps_the_limits_to_plus_and_minus_one() -> None:
    assert [unscale(x, -2.0, 4.0) for x in (-2.0, 1.0, 4.0, 7.0)] == [-1.0, 0.0, 1.0, 2.0]


@pytest.mark.parametrize(("degrees", "expected"), [(0.0, 0.0), (90.0, 90.0), (-90.0, 270.0), (179.0, 179.0)])
def test_roll_and_yaw_lie_in_one_turn(degrees: float, expected: float) -> None:
    assert roll_of(_about("x", degrees)) == pytest.approx(math.radians(expected), abs=1e-6)
    assert yaw_of(_about("z", degrees)) == pytest.approx(math.radians(expected), abs=1e-6)
    assert yaw_of(_about("x", degrees / 2)) == pytest.approx(0.0, abs=1e-6)
    assert 0.0 <= wrap_two_pi(-1e-9) <= 2 * math.pi


def _env(**cfg: float) -> TaskEnv:
    """An ant env whose contract tensors, actions and memory are all drawn at random."""
    env = make_env("Ant", cfg, num_envs=N)
    g = torch.Generator().manual_seed(0)
    e, task = env.engine, env.task
    e.root_pos.copy_(
        torch.randn(N, 1, 3, generator=g) * torch.tensor([20.0, 20.0, 0.3]) + torch.tensor([0.0, 0.0, 0.5])
    )
    e.root_quat.copy_(torch.nn.functional.normalize(torch.randn(N, 1, 4, generator=g), dim=-1))
    e.root_quat[: N // 2] = torch.nn.functional.normalize(
        torch.randn(N // 2, 1, 4, generator=g) * torch.tensor([0.1, 0.1, 0.3, 0.0]) + torch.tensor([0, 0, 0, 1.0]),
        dim=-1,
    )
    for tensor, size in ((e.root_lin_vel, 3.0), (e.root_ang_vel, 5.0), (e.dof_vel, 10.0), (e.site_wrench, 20.0)):
        tensor.copy_(torch.randn(tensor.shape, generator=g) * size)
    e.dof_pos.copy_(e.dof_lower + (e.dof_upper - e.dof_lower) * torch.rand(N, 8, generator=g) * 1.1)
    task.actions.copy_(torch.rand(N, 8, generator=g) * 2 - 1)
    task.saved()["last_xy"].copy_(e.root_pos[:, 0, :2] + torch.randn(N, 2, generator=g) * 0.1)
    task.fresh.copy_(torch.rand(N, generator=g) < 0.2)
    # edges: upright and facing the target, facing away, upside down, on the height and just below it
    e.root_pos[:4, 0] = torch.tensor([[0.0, 0.0, 0.5], [3.0, 0.0, 0.5], [0.0, 0.0, 0.31], [0.0, 0.0, 0.3099]])
    e.root_quat[:4, 0] = torch.tensor([[0.0, 0, 0, 1], [0, 0, 1, 0], [1, 0, 0, 0], [0, 0, 0, 1]])
    e.dof_pos[:4] = e.dof_upper
    return env


def _rotate(q: Tensor, v: Tensor) -> Tensor:
    xyz, w = q[:, :3], q[:, 3:]
    t = 2 * torch.cross(xyz, v, dim=-1)
    return v + w * t + torch.cross(xyz, t, dim=-1)


def _reference(env: TaskEnv, last_xy: Tensor) -> Tuple[Tensor, Tensor, Tensor]:
    """Observation, reward and end in float64, from the definitions."""
    e, task, cfg = env.engine, env.task, env.task.cfg
    pos, q = e.root_pos[:, 0].double(), e.root_quat[:, 0].double()
    back = q * torch.tensor([-1.0, -1.0, -1.0, 1.0], dtype=torch.float64)
    x, y, z, w = q.unbind(-1)
    turn = 2 * math.pi
    yaw = torch.atan2(2 * (w * z + x * y), w**2 + x**2 - y**2 - z**2) % turn
    roll = torch.atan2(2 * (w * x + y * z), w**2 - x**2 - y**2 + z**2) % turn
    to_target = torch.stack([TARGET - pos[:, 0], -pos[:, 1]], -1)
    forward, up = _rotate(q, torch.tensor([[1.0, 0, 0]]).double().expand(N, 3)), 1 - 2 * (x**2 + y**2)
    heading = (forward[:, :2] * to_target / to_target.norm(dim=-1, keepdim=True)).sum(-1)
    lower, upper = e.dof_lower.double(), e.dof_upper.double()
    scaled = (2 * e.dof_pos.double() - upper - lower) / (upper - lower)
    speed = e.dof_vel.double() * cfg["dofVelocityScale"]
    actions = task.actions.double()
    obs = torch.cat(
        [
            pos[:, 2:],
            _rotate(back, e.root_lin_vel[:, 0].double()),
            _rotate(back, e.root_ang_vel[:, 0].double()),
            torch.stack([yaw, roll, torch.atan2(to_target[:, 1], to_target[:, 0]) - yaw, up, heading], -1),
            scaled,
            speed,
            e.site_wrench.double().flatten(1) * cfg["contactForceScale"],
            torch.where(task.fresh[:, None], 0.0, actions),
        ],
        -1,
    )
    before = torch.stack([TARGET - last_xy[:, 0].double(), -last_xy[:, 1].double()], -1)
    progress = (before.norm(dim=-1) - to_target.norm(dim=-1)) / DT
    reward = torch.where(task.fresh, 0.0, progress) + 0.5
    reward += cfg["upWeight"] * (up > 0.93)
    reward += torch.where(heading > 0.8, cfg["headingWeight"], cfg["headingWeight"] * heading / 0.8)
    reward -= cfg["actionsCost"] * (actions**2).sum(-1) + cfg["energyCost"] * (actions * speed).abs().sum(-1)
    reward -= cfg["jointsAtLimitCost"] * (scaled > 0.99).sum(-1)
    fallen = e.root_pos[:, 0, 2] < torch.tensor(cfg["terminationHeight"])  # the height itself is a float32
    return obs, torch.where(fallen, cfg["deathCost"], reward), fallen


@pytest.mark.parametrize(
    "cfg",
    [
        {},
        {"headingWeight": 0.7, "upWeight": 0.3, "actionsCost": 0.02, "energyCost": 0.1, "jointsAtLimitCost": 0.4},
        {"dofVelocityScale": 0.1, "contactForceScale": 0.05, "deathCost": -5.0, "terminationHeight": 0.4},
    ],
)
def test_the_kernel_agrees_with_a_float64_reference(cfg: dict) -> None:
    env = _env(**cfg)
    last_xy = env.task.saved()["last_xy"].clone()
    obs, reward, fallen = _reference(env, last_xy)
    env.task.observe()
    assert torch.equal(env.terminated, fallen)
    assert 10 < fallen.sum() < N - 10
    torch.testing.assert_close(env.obs.double(), obs, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(env.reward.double(), reward, atol=1e-5, rtol=1e-5)
    assert torch.equal(env.task.saved()["last_xy"], env.engine.root_pos[:, 0, :2])


def test_an_action_is_fifteen_newton_metres_times_power_scale() -> None:
    env = make_env("Ant", {"powerScale": 0.5}, num_envs=2)
    env.task.apply(torch.tensor([[1.0, -0.5, 0, 0, 0, 0, 0, 3.0], [0.0] * 8]))
    assert env.task.efforts[0].tolist() == [7.5, -3.75, 0, 0, 0, 0, 0, 7.5]
    assert not env.task.efforts[1].any()


def test_an_idle_ant_stands_on_its_feet() -> None:
    env = make_env("Ant", {}, num_envs=16)
    env.reset()
    for _ in range(150):
        env.step(torch.zeros(16, 8))
    assert not env.terminated.any()
    assert (env.obs[:, 0] - 0.38).abs().max() < 0.01
    assert env.obs[:, 10].min() > 0.99
    assert env.engine.dof_vel.abs().max() < 0.05
    # each foot is pressed down with a share of the weight of torso and legs, less than the whole
    down = -env.engine.site_wrench[:, :, 2]
    assert 0.5 < down.min() < down.max() < 0.89 * 9.81


@pytest.mark.parametrize("bang_bang", [False, True])
def test_random_actions_never_break_the_physics(bang_bang: bool) -> None:
    env = make_env("Ant", {}, num_envs=128)
    env.reset()
    generator = torch.Generator().manual_seed(0)
    height = 0.0
    for _ in range(150):
        actions = torch.randn(128, 8, generator=generator)
        env.step(actions.sign() if bang_bang else actions)
        assert not env.invalid.any()
        height = max(height, env.obs[:, 0].max().item())
    env.check()
    assert height < 3.0
    assert env.obs[:, 1:4].abs().max() < 20.0
