"""The targets of :mod:`isaac_appo.learn.targets` as one Warp launch per slab: one thread walks back one env."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

import torch
from torch import Tensor

from isaac_appo.kernels import launch, wp
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.rollout.slab import LIVE, Slab

wp.set_module_options({"enable_backward": False})

_LIVE = wp.constant(wp.uint8(LIVE))
_LARGEST = 3.0e38


class RewardShaper(NamedTuple):
    """rl_games' ``reward_shaper``: ``clamp(log?((r + shift) * scale), min, max)``."""

    scale: float = 1.0
    shift: float = 0.0
    low: float = -_LARGEST
    high: float = _LARGEST
    log: bool = False


@wp.kernel
def targets_kernel(
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    bootstrap_truncated: wp.bool,
    scale: float,
    shift: float,
    low: float,
    high: float,
    rewards: wp.array2d(dtype=wp.float32),
    values: wp.array2d(dtype=wp.float32),
    final: wp.array2d(dtype=wp.float32),
    terminated: wp.array2d(dtype=wp.bool),
    truncated: wp.array2d(dtype=wp.bool),
    status: wp.array2d(dtype=wp.uint8),
    w: wp.array2d(dtype=wp.float32),
    vs: wp.array2d(dtype=wp.float32),
    advantages: wp.array2d(dtype=wp.float32),
) -> None:
    """Walk one env from the last row to the first; every element of ``vs`` and ``advantages`` is written."""
    env = wp.tid()
    horizon = rewards.shape[0]
    trace = float(0.0)
    next_value = values[horizon, env]
    boot = next_value
    for back in range(horizon):
        t = horizon - 1 - back
        v = values[t, env]
        r = wp.clamp((rewards[t, env] + shift) * scale, low, high)
        after = next_value
        if truncated[t, env]:
            trace = 0.0
            after = final[t, env]
            if not bootstrap_truncated:
                after = 0.0
            boot = after
        if terminated[t, env]:
            trace = 0.0
            after = 0.0
            boot = 0.0
        advantage = r + gamma * boot - v
        weight = w[t, env]
        delta = wp.min(weight, rho_bar) * (r + gamma * after - v)
        trace = delta + gamma * lam * wp.min(weight, c_bar) * trace
        if status[t, env] != _LIVE:
            advantage = 0.0
            trace = 0.0
        target = v + trace
        vs[t, env] = target
        advantages[t, env] = advantage
        boot = lam * target + (1.0 - lam) * v
        next_value = v


class TargetLaunch:
    """The kernel bound to one slab, its values and its outputs (views of any stride): a launch converts nothing.

    Args:
        slab: rewards, ends and status.
        values_TN: ``[T + 1, N]``.
        w_TN: ``pi_prox / mu``, read where ``settings.use_vtrace``; GAE takes every weight as 1.
        outputs: ``(vs_TN, advantages_TN)``.
        bootstrap_truncated: ``False`` is rl_games' ``value_bootstrap: False``, a time-out taken as terminal.
        final_values_TN: values of the true last observations, read at truncations of a ``same_step`` slab. Without
            them such a slab takes ``values_TN[t]``, as rl_games does; any other slab has them in ``values_TN[t + 1]``.
    """

    def __init__(
        self,
        slab: Slab,
        values_TN: Tensor,
        w_TN: Optional[Tensor],
        outputs: Tuple[Tensor, Tensor],
        settings: TargetSettings,
        shaper: RewardShaper = RewardShaper(),  # noqa: B008 (immutable)
        bootstrap_truncated: bool = True,
        final_values_TN: Optional[Tensor] = None,
    ) -> None:
        s = settings
        rho_bar, c_bar = (s.rho_bar, s.c_bar) if s.use_vtrace else (1.0, 1.0)
        if w_TN is None or not s.use_vtrace:
            w_TN = torch.ones_like(slab.rewards_TN)
        self._rewards_TN, self._shaper, self._shaped_TN = slab.rewards_TN, shaper, slab.rewards_TN
        if shaper.log:
            # not in the kernel: LLVM computes the logarithm of every row, wanted or not, which doubles its time
            self._shaped_TN, shaper = torch.zeros_like(slab.rewards_TN), shaper._replace(scale=1.0, shift=0.0)
        low, high = max(shaper.low, -_LARGEST), min(shaper.high, _LARGEST)
        scalars = [s.gamma, s.lam, rho_bar, c_bar, bootstrap_truncated, shaper.scale, shaper.shift, low, high]
        final = values_TN[1:] if slab.autoreset != "same_step" else final_values_TN
        final = values_TN[:-1] if final is None else final
        tensors = (self._shaped_TN, values_TN, final, slab.terminated_TN, slab.truncated_TN, slab.status_TN, w_TN)
        self._inputs = [*scalars, *(wp.from_torch(x) for x in tensors)]
        self._outputs = [wp.from_torch(x) for x in outputs]
        self._num_envs = slab.num_envs
        self._device = str(slab.rewards_TN.device)

    def __call__(self) -> None:
        """Compute ``vs`` and the advantages of the slab."""
        if self._shaper.log:
            torch.add(self._rewards_TN, self._shaper.shift, out=self._shaped_TN)
            self._shaped_TN.mul_(self._shaper.scale).log_()
        launch(targets_kernel, dim=self._num_envs, inputs=self._inputs, outputs=self._outputs, device=self._device)
