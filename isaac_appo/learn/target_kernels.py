"""The targets of :mod:`isaac_appo.learn.targets` as one Warp launch per slab: one thread walks back one env."""

from __future__ import annotations

from typing import Any, NamedTuple, Tuple

from torch import Tensor

from isaac_appo.kernels import wp
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.rollout.slab import LIVE, Slab

_LIVE = wp.constant(LIVE)


class RewardShaper(NamedTuple):
    """rl_games' ``reward_shaper``: ``clamp(log?((r + shift) * scale), min, max)``."""

    scale: float = 1.0
    shift: float = 0.0
    low: float = -3.0e38
    high: float = 3.0e38
    log: bool = False


@wp.struct
class TargetParams:
    """Scalars of the kernel, packed once."""

    gamma: wp.float32
    lam: wp.float32
    rho_bar: wp.float32
    c_bar: wp.float32
    use_vtrace: wp.bool
    bootstrap_truncated: wp.bool
    scale: wp.float32
    shift: wp.float32
    low: wp.float32
    high: wp.float32
    log: wp.bool


@wp.func
def shape_reward(reward: float, p: TargetParams) -> float:
    """Apply rl_games' reward shaper to one reward."""
    shaped = (reward + p.shift) * p.scale
    if p.log:
        shaped = wp.log(shaped)
    return wp.clamp(shaped, p.low, p.high)


@wp.kernel
def targets_kernel(
    p: TargetParams,
    rewards: wp.array(dtype=wp.float32, ndim=2),
    values: wp.array(dtype=wp.float32, ndim=2),
    terminated: wp.array(dtype=wp.bool, ndim=2),
    truncated: wp.array(dtype=wp.bool, ndim=2),
    status: wp.array(dtype=wp.uint8, ndim=2),
    log_w: wp.array(dtype=wp.float32, ndim=2),
    vs: wp.array(dtype=wp.float32, ndim=2),
    advantages: wp.array(dtype=wp.float32, ndim=2),
) -> None:
    """Walk one env from the last row to the first; every element of ``vs`` and ``advantages`` is written."""
    env = wp.tid()
    horizon = rewards.shape[0]
    trace = float(0.0)
    next_vs = float(0.0)
    for back in range(horizon):
        t = horizon - 1 - back
        v = values[t, env]
        next_v = values[t + 1, env]
        ends = terminated[t, env] or (truncated[t, env] and not p.bootstrap_truncated)
        done = terminated[t, env] or truncated[t, env]
        if ends:
            next_v = 0.0
        w = float(1.0)
        rho = float(1.0)
        c = p.lam
        if p.use_vtrace:
            w = wp.exp(log_w[t, env])
            rho = wp.min(w, p.rho_bar)
            c = p.lam * wp.min(w, p.c_bar)
        boot = next_v
        if not done and back > 0:
            boot = p.lam * next_vs + (1.0 - p.lam) * next_v
        advantage = float(0.0)
        if int(status[t, env]) == _LIVE:
            r = shape_reward(rewards[t, env], p)
            delta = rho * (r + p.gamma * next_v - v)
            if done:
                trace = 0.0
            trace = delta + p.gamma * c * trace
            advantage = r + p.gamma * boot - v
        else:
            trace = 0.0
        next_vs = v + trace
        vs[t, env] = next_vs
        advantages[t, env] = advantage


def pack_params(settings: TargetSettings, shaper: RewardShaper, bootstrap_truncated: bool) -> TargetParams:
    """Kernel scalars from the settings; ``bootstrap_truncated=False`` is rl_games' ``value_bootstrap: False``."""
    p: Any = TargetParams()
    p.gamma, p.lam, p.use_vtrace = settings.gamma, settings.lam, settings.use_vtrace
    p.rho_bar, p.c_bar = settings.rho_bar, settings.c_bar
    p.bootstrap_truncated = bootstrap_truncated
    p.scale, p.shift, p.low, p.high, p.log = shaper
    return p


class TargetLaunch:
    """The kernel bound to one slab, its values and its outputs (views of any stride): a launch converts nothing."""

    def __init__(
        self, slab: Slab, values_TN: Tensor, log_w_TN: Tensor, outputs: Tuple[Tensor, Tensor], params: TargetParams
    ) -> None:
        tensors = (slab.rewards_TN, values_TN, slab.terminated_TN, slab.truncated_TN, slab.status_TN, log_w_TN)
        self._inputs = [params, *(wp.from_torch(x) for x in tensors)]
        self._outputs = [wp.from_torch(x) for x in outputs]
        self._num_envs = slab.rewards_TN.shape[1]
        self._device = str(slab.rewards_TN.device)

    def __call__(self) -> None:
        """Compute ``vs`` and the advantages of the slab."""
        wp.launch(targets_kernel, dim=self._num_envs, inputs=self._inputs, outputs=self._outputs, device=self._device)
