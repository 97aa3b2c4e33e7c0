"""Ant: run in the +x direction on four legs. Sixty observations, eight actions.

Observation: 0 torso height m; 1:4 linear and 4:7 angular velocity in torso axes, m/s and rad/s; 7 yaw and 8 roll in
[0, 2π); 9 angle to the target; 10 up and 11 heading projection; 12:20 dof positions, -1 and 1 at the limits; 20:28 dof
velocities; 28:52 wrenches of the four feet; 52:60 actions (zero in the first step of an episode).
"""

# Warp's stubs know no component access to its vectors.
# mypy: disable-error-code="index"

from __future__ import annotations

import math
from typing import ClassVar, Dict, Mapping, Tuple

import torch
from torch import Tensor

from isaac_appo.kernels import launch, wp
from isaac_appo.sim.engine import Engine
from isaac_appo.tasks.base import Task, asset

__all__ = ["Ant"]

wp.set_module_options({"enable_backward": False})

_TARGET_X = wp.constant(1000.0)  # m; the target is the point (1000, 0) on the ground
_TWO_PI = wp.constant(6.283185307179586)
_ALIVE = wp.constant(0.5)


@wp.struct
class AntRules:
    """The numbers of the task; names as in `Ant.defaults`."""

    dt: float
    dof_vel_scale: float
    wrench_scale: float
    heading_weight: float
    up_weight: float
    actions_cost: float
    energy_cost: float
    limit_cost: float
    death_cost: float
    termination_height: float


@wp.func
def wrap_two_pi(angle: float) -> float:
    """The same angle in [0, 2π), for an angle in [-2π, 2π]."""
    wrapped = angle
    if angle < 0.0:
        wrapped = angle + _TWO_PI
    if wrapped >= _TWO_PI:  # a tiny negative angle rounds up to the full turn
        wrapped = 0.0
    return wrapped


@wp.func
def roll_of(q: wp.quat) -> float:
    """Roll in [0, 2π): the x angle of the x-y-z (roll, pitch, yaw) decomposition. q: xyzw, unit."""
    return wrap_two_pi(
        wp.atan2(2.0 * (q[3] * q[0] + q[1] * q[2]), q[3] * q[3] - q[0] * q[0] - q[1] * q[1] + q[2] * q[2])
    )


@wp.func
def yaw_of(q: wp.quat) -> float:
    """Yaw in [0, 2π): the z angle of the x-y-z (roll, pitch, yaw) decomposition. q: xyzw, unit."""
    return wrap_two_pi(
        wp.atan2(2.0 * (q[3] * q[2] + q[0] * q[1]), q[3] * q[3] + q[0] * q[0] - q[1] * q[1] - q[2] * q[2])
    )


@wp.func
def unscale(x: float, lower: float, upper: float) -> float:
    """Map [lower, upper] to [-1, 1]."""
    return (2.0 * x - upper - lower) / (upper - lower)


@wp.func
def progress_reward(before: wp.vec2, now: wp.vec2, dt: float) -> float:
    """Speed towards the target in m/s: the distance gained, over dt.

    |a| - |b| is taken as (a-b)·(a+b) / (|a|+|b|): the plain difference of two lengths near 1000 m keeps two digits.
    """
    a = wp.vec2(_TARGET_X - before[0], -before[1])
    b = wp.vec2(_TARGET_X - now[0], -now[1])
    return wp.dot(now - before, a + b) / ((wp.length(a) + wp.length(b)) * dt)


@wp.func
def heading_reward(heading: float, weight: float) -> float:
    """The weight when the torso's x axis points at the target (projection above 0.8), less in proportion below."""
    if heading > 0.8:
        return weight
    return weight * heading / 0.8


@wp.func
def up_reward(up: float, weight: float) -> float:
    """The weight when the torso's z axis is upright (projection above 0.93)."""
    if up > 0.93:
        return weight
    return 0.0


@wp.func
def effort_cost(actions: wp.array(dtype=float), obs: wp.array(dtype=float), rules: AntRules) -> float:
    """actionsCost * Σ a² + energyCost * Σ |a * scaled dof velocity| + jointsAtLimitCost * (dofs above 0.99).

    actions [8], obs [60]: one env's rows.
    """
    squares = float(0.0)  # Warp takes a bare literal for a constant
    power = float(0.0)
    at_limit = float(0.0)
    for d in range(8):
        squares += actions[d] * actions[d]
        power += wp.abs(actions[d] * obs[20 + d])
        if obs[12 + d] > 0.99:
            at_limit += 1.0
    return rules.actions_cost * squares + rules.energy_cost * power + rules.limit_cost * at_limit


@wp.func
def observe_torso(pos: wp.vec3, q: wp.quat, lin_vel: wp.vec3, ang_vel: wp.vec3, obs: wp.array(dtype=float)) -> None:
    """Write obs[0:12] of one env from the torso's pose (m, xyzw) and its world velocities (m/s, rad/s)."""
    linear = wp.quat_rotate_inv(q, lin_vel)
    angular = wp.quat_rotate_inv(q, ang_vel)
    forward = wp.quat_rotate(q, wp.vec3(1.0, 0.0, 0.0))
    to_target = wp.normalize(wp.vec2(_TARGET_X - pos[0], -pos[1]))
    yaw = yaw_of(q)
    obs[0] = pos[2]
    for i in range(3):
        obs[1 + i] = linear[i]
        obs[4 + i] = angular[i]
    obs[7] = yaw
    obs[8] = roll_of(q)
    obs[9] = wp.atan2(to_target[1], to_target[0]) - yaw
    obs[10] = wp.quat_rotate(q, wp.vec3(0.0, 0.0, 1.0))[2]
    obs[11] = forward[0] * to_target[0] + forward[1] * to_target[1]


@wp.kernel
def observe_ant(
    rules: AntRules,
    fresh: wp.array(dtype=wp.bool),
    actions: wp.array2d(dtype=float),
    root_pos: wp.array2d(dtype=wp.vec3),
    root_quat: wp.array2d(dtype=wp.quat),
    root_lin_vel: wp.array2d(dtype=wp.vec3),
    root_ang_vel: wp.array2d(dtype=wp.vec3),
    dof_pos: wp.array2d(dtype=float),
    dof_vel: wp.array2d(dtype=float),
    dof_lower: wp.array(dtype=float),
    dof_upper: wp.array(dtype=float),
    site_wrench: wp.array3d(dtype=float),
    last_xy: wp.array(dtype=wp.vec2),
    obs: wp.array2d(dtype=float),
    reward: wp.array(dtype=float),
    terminated: wp.array(dtype=wp.bool),
) -> None:
    """One step's observation, reward and end. Shapes: roots [N, 1], dofs [N, 8], wrenches [N, 4, 6], last_xy [N]."""
    n = wp.tid()
    pos = root_pos[n, 0]
    observe_torso(pos, root_quat[n, 0], root_lin_vel[n, 0], root_ang_vel[n, 0], obs[n])
    for d in range(8):
        obs[n, 12 + d] = unscale(dof_pos[n, d], dof_lower[d], dof_upper[d])
        obs[n, 20 + d] = dof_vel[n, d] * rules.dof_vel_scale
        obs[n, 52 + d] = wp.where(fresh[n], 0.0, actions[n, d])
    for s in range(4):
        for i in range(6):
            obs[n, 28 + 6 * s + i] = site_wrench[n, s, i] * rules.wrench_scale
    now = wp.vec2(pos[0], pos[1])
    before = wp.where(fresh[n], now, last_xy[n])
    last_xy[n] = now
    good = progress_reward(before, now, rules.dt) + _ALIVE
    good += up_reward(obs[n, 10], rules.up_weight) + heading_reward(obs[n, 11], rules.heading_weight)
    fallen = pos[2] < rules.termination_height
    reward[n] = wp.where(fallen, rules.death_cost, good - effort_cost(actions[n], obs[n], rules))
    terminated[n] = fallen


class Ant(Task):
    """See the file's docstring. Action: torque of each dof over 15 N·m * powerScale."""

    name: ClassVar[str] = "Ant"
    num_obs: ClassVar[int] = 60
    num_actions: ClassVar[int] = 8
    model_file: ClassVar[str] = asset("ant.xml")
    sites: ClassVar[Tuple[str, ...]] = ("foot_1", "foot_2", "foot_3", "foot_4")
    dof_names: ClassVar[Tuple[str, ...]] = tuple(f"{joint}_{leg}" for leg in "1234" for joint in ("hip", "ankle"))
    obs_names: ClassVar[Tuple[str, ...]] = (
        "height",
        *(f"{kind}_vel_{axis}" for kind in ("lin", "ang") for axis in "xyz"),
        *("yaw", "roll", "target_angle", "up", "heading"),
        *(f"pos_{dof}" for dof in dof_names),
        *(f"vel_{dof}" for dof in dof_names),
        *(f"{kind}_{axis}_{site}" for site in sites for kind in ("force", "torque") for axis in "xyz"),
        *(f"action_{dof}" for dof in dof_names),
    )
    action_names: ClassVar[Tuple[str, ...]] = tuple(f"torque_{dof}" for dof in dof_names)
    defaults: ClassVar[Dict[str, float]] = {
        "episodeLength": 1000,
        "powerScale": 1.0,
        "headingWeight": 0.5,
        "upWeight": 0.1,
        "actionsCost": 0.005,
        "energyCost": 0.05,
        "dofVelocityScale": 0.2,
        "contactForceScale": 0.1,
        "jointsAtLimitCost": 0.1,
        "deathCost": -2.0,
        "terminationHeight": 0.31,
        "clipActions": 1.0,
        "clipObservations": math.inf,
    }
    positive: ClassVar[Tuple[str, ...]] = (*Task.positive, "powerScale")
    pos_spread: ClassVar[float] = 0.2
    vel_spread: ClassVar[float] = 0.1

    def __init__(self, engine: Engine, cfg: Mapping[str, float], seed: int) -> None:
        super().__init__(engine, cfg, seed)
        self.last_xy = torch.zeros(self.num_envs, 2, device=self.device)
        self._torque = engine.effort_limit * self.cfg["powerScale"]
        self._rules = self._make_rules()
        typed = {"root_pos": wp.vec3, "root_quat": wp.quat, "root_lin_vel": wp.vec3, "root_ang_vel": wp.vec3}
        typed_views = {key: wp.from_torch(getattr(engine, key), dtype=dtype) for key, dtype in typed.items()}
        views = {**self.wp, **typed_views, "last_xy": wp.from_torch(self.last_xy, dtype=wp.vec2)}
        order = ["fresh", "actions", "root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel"]
        order += ["dof_lower", "dof_upper", "site_wrench"]
        self._inputs = [self._rules] + [views[key] for key in order]
        self._outputs = [views[key] for key in ("last_xy", "obs", "reward", "terminated")]

    def _make_rules(self) -> AntRules:
        cfg = self.cfg
        rules = AntRules()
        rules.dt = self.engine.control_dt
        rules.dof_vel_scale = cfg["dofVelocityScale"]
        rules.wrench_scale = cfg["contactForceScale"]
        rules.heading_weight = cfg["headingWeight"]
        rules.up_weight = cfg["upWeight"]
        rules.actions_cost = cfg["actionsCost"]
        rules.energy_cost = cfg["energyCost"]
        rules.limit_cost = cfg["jointsAtLimitCost"]
        rules.death_cost = cfg["deathCost"]
        rules.termination_height = cfg["terminationHeight"]
        return rules

    def _efforts(self) -> None:
        torch.mul(self.actions, self._torque, out=self.efforts)

    def observe(self) -> None:
        """See `Task`."""
        launch(observe_ant, self.num_envs, inputs=self._inputs, outputs=self._outputs, device=str(self.device))

    def saved(self) -> Dict[str, Tensor]:
        """See `Task`: where every torso was, which the progress reward needs."""
        return {"last_xy": self.last_xy}
