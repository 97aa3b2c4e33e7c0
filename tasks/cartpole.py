"""Cartpole: keep a pole upright on a cart by pushing the cart. Four observations, one action."""

from __future__ import annotations

from typing import ClassVar, Dict, Tuple

import torch

from isaac_appo.kernels import launch, wp
from isaac_appo.tasks.base import Task, asset

__all__ = ["Cartpole"]

wp.set_module_options({"enable_backward": False})

_HALF_PI = wp.constant(1.5707963267948966)


@wp.func
def balance_reward(cart_vel: float, angle: float, pole_vel: float) -> float:
    """1 per step upright and still: 1 - angle² - 0.01 |cart velocity| - 0.005 |pole velocity| (m/s, rad, rad/s)."""
    return 1.0 - angle * angle - 0.01 * wp.abs(cart_vel) - 0.005 * wp.abs(pole_vel)


@wp.func
def out_of_bounds(cart_pos: float, angle: float, reset_dist: float) -> bool:
    """Whether the cart is more than reset_dist m from the middle or the pole more than 90° from upright."""
    return wp.abs(cart_pos) > reset_dist or wp.abs(angle) > _HALF_PI


@wp.kernel
def observe_cartpole(
    reset_dist: float,
    dof_pos: wp.array2d(dtype=float),
    dof_vel: wp.array2d(dtype=float),
    obs: wp.array2d(dtype=float),
    reward: wp.array(dtype=float),
    terminated: wp.array(dtype=wp.bool),
) -> None:
    """One step's observation, reward and end. Shapes: dof_pos, dof_vel [N, 2] (cart, pole), obs [N, 4]."""
    n = wp.tid()
    obs[n, 0] = dof_pos[n, 0]
    obs[n, 1] = dof_vel[n, 0]
    obs[n, 2] = dof_pos[n, 1]
    obs[n, 3] = dof_vel[n, 1]
    lost = out_of_bounds(dof_pos[n, 0], dof_pos[n, 1], reset_dist)
    reward[n] = wp.where(lost, -2.0, balance_reward(dof_vel[n, 0], dof_pos[n, 1], dof_vel[n, 1]))
    terminated[n] = lost


class Cartpole(Task):
    """Observation: cart position m and velocity m/s, pole angle rad and velocity rad/s. Action: push / maxEffort."""

    name: ClassVar[str] = "Cartpole"
    num_obs: ClassVar[int] = 4
    num_actions: ClassVar[int] = 1
    model_file: ClassVar[str] = asset("cartpole.xml")
    dof_names: ClassVar[Tuple[str, ...]] = ("slider_to_cart", "cart_to_pole")
    obs_names: ClassVar[Tuple[str, ...]] = ("cart_pos", "cart_vel", "pole_angle", "pole_vel")
    action_names: ClassVar[Tuple[str, ...]] = ("push",)
    defaults: ClassVar[Dict[str, float]] = {
        "episodeLength": 500,
        "resetDist": 3.0,
        "maxEffort": 400.0,
        "clipActions": 1.0,
        "clipObservations": 5.0,
    }
    positive: ClassVar[Tuple[str, ...]] = (*Task.positive, "resetDist", "maxEffort")
    pos_spread: ClassVar[float] = 0.1
    vel_spread: ClassVar[float] = 0.25

    def _efforts(self) -> None:
        torch.mul(self.actions, self.cfg["maxEffort"], out=self.efforts[:, :1])

    def observe(self) -> None:
        """See `Task`."""
        w = self.wp
        inputs = [self.cfg["resetDist"], w["dof_pos"], w["dof_vel"]]
        outputs = [w["obs"], w["reward"], w["terminated"]]
        launch(observe_cartpole, self.num_envs, inputs=inputs, outputs=outputs, device=str(self.device))
