"""Action sampling with counter-based noise, fused in one kernel: ``a = mu + sigma * noise`` and its log-probability."""

from __future__ import annotations

import torch
from torch import Tensor

from isaac_appo.kernels import ACTION_NOISE, philox_normal, wp

HALF_LOG_TWO_PI = 0.9189385332046727


@wp.kernel
def sample_kernel(
    seed: wp.uint64,
    step: wp.array(dtype=wp.int64, ndim=1),
    first_env: wp.uint32,
    limit: float,
    mu: wp.array(dtype=wp.float32, ndim=2),
    log_std: wp.array(dtype=wp.float32, ndim=2),
    action: wp.array(dtype=wp.float32, ndim=2),
    env_action: wp.array(dtype=wp.float32, ndim=2),
    sigma: wp.array(dtype=wp.float32, ndim=2),
    neglogp: wp.array(dtype=wp.float32, ndim=1),
) -> None:
    """One thread per env. ``neglogp`` is of the unclipped action; the env gets it clipped to ``+-limit``.

    ``step`` ``[1]`` is in memory, not an argument by value, so that a captured launch draws anew at each replay.
    """
    env = wp.tid()
    now = wp.uint64(step[0])
    num_actions = mu.shape[1]
    total = float(0.0)
    noise = wp.vec4(0.0, 0.0, 0.0, 0.0)
    for a in range(num_actions):
        if a % 4 == 0:
            stream = wp.uint32(ACTION_NOISE + 16 * (a / 4))
            noise = philox_normal(seed, now, first_env + wp.uint32(env), stream)  # type: ignore[arg-type]
        s = wp.exp(log_std[env, a])
        x = mu[env, a] + s * noise[a % 4]
        # the same arithmetic as the learner's, so that the ratio on fresh data is 1 to rounding
        z = (x - mu[env, a]) / s
        total += 0.5 * z * z + log_std[env, a] + HALF_LOG_TWO_PI
        action[env, a] = x
        env_action[env, a] = wp.clamp(x, -limit, limit)
        sigma[env, a] = s
    neglogp[env] = total


def neglogp(action: Tensor, mu: Tensor, log_std: Tensor) -> Tensor:
    """Negative log-density of diagonal Gaussians: ``[B, A] x 3 -> [B]``."""
    z = (action - mu) * torch.exp(-log_std)
    return 0.5 * z.square().sum(-1) + log_std.sum(-1) + HALF_LOG_TWO_PI * action.shape[-1]
