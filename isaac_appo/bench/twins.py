"""Torch twins of the kernels that every pipeline runs, for a GPU machine without Warp.

:func:`stand_in_for_warp` puts a module in Warp's place whose ``launch`` calls them. The numbers are the kernels' own
(to rounding), the speed is not: each is tens of launches where a kernel is one. Only the bench's synthetic problem uses
them, and says so; training needs Warp.
"""

from __future__ import annotations

import math
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType, SimpleNamespace
from typing import Any, Callable, Dict, List, Sequence

import torch
from torch import Tensor

__all__ = ["TWINS", "philox_uniform", "record", "sample", "stand_in_for_warp", "targets"]

STAND_IN = "stand-in for Warp"
_LOW = 0xFFFFFFFF
_MULTIPLIERS, _STEPS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)


def philox_uniform(seed: int, step: Tensor, env: Tensor, stream: int) -> Tensor:
    """Philox4x32-10 in int64: four uniforms in (0, 1) per env, ``[N] -> [N, 4]``; ``step`` is int64 ``[1]``."""
    key = [seed & _LOW, seed >> 32]
    c = [(step & _LOW).expand_as(env), ((step >> 32) & _LOW).expand_as(env), env, torch.full_like(env, stream)]
    for _ in range(10):
        p0, p1 = c[0] * _MULTIPLIERS[0], c[2] * _MULTIPLIERS[1]  # wrap at 64 bits, which keeps every bit
        c = [((p1 >> 32) & _LOW) ^ c[1] ^ key[0], p1 & _LOW, ((p0 >> 32) & _LOW) ^ c[3] ^ key[1], p0 & _LOW]
        key = [(k + w) & _LOW for k, w in zip(key, _STEPS)]
    return ((torch.stack(c, 1).float() + 0.5) * 2.0**-32).clamp(max=0.99999994)


def _normal(u: Tensor) -> Tensor:
    """Box and Muller: uniforms ``[N, 4]`` to independent N(0, 1)."""
    radius, angle = torch.sqrt(-2.0 * torch.log(u[:, 0::2])), 2.0 * math.pi * u[:, 1::2]
    return torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], 2).flatten(1)


def sample(
    seed: int, step: Tensor, first_env: int, limit: float, mu: Tensor, log_std: Tensor, *outputs: Tensor
) -> None:
    """Twin of :func:`isaac_appo.policy.sampling.sample_kernel`."""
    action, env_action, sigma, neglogp = outputs
    num_envs, num_actions = mu.shape
    env = torch.arange(first_env, first_env + num_envs, device=mu.device)
    noise = torch.cat([_normal(philox_uniform(seed, step, env, 16 * i)) for i in range((num_actions + 3) // 4)], 1)
    torch.exp(log_std, out=sigma)
    torch.addcmul(mu, sigma, noise[:, :num_actions], out=action)
    torch.clamp(action, -limit, limit, out=env_action)
    z = (action - mu) / sigma
    neglogp.copy_((0.5 * z * z + log_std + 0.5 * math.log(2.0 * math.pi)).sum(1))


def record(
    reward: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    invalid: Tensor,
    after_done: int,
    prev_done: Tensor,
    running_return: Tensor,
    running_length: Tensor,
    *row: Tensor,
) -> None:
    """Twin of :func:`isaac_appo.rollout.collector.record_kernel`; dead is status 1 and NaN 2, as in the slab."""
    row_reward, row_terminated, row_truncated, row_status, row_return, row_length = row
    dead = prev_done & (after_done > 0)
    void = dead & (after_done == 1)
    done = terminated | truncated | invalid
    row_reward.copy_(reward)
    row_terminated.copy_(terminated)
    row_truncated.copy_(truncated)
    row_status.copy_(torch.where(dead, 1, 2 * invalid.int()))
    running_return.add_(reward.masked_fill(void, 0.0))
    running_length.add_(~void)
    counted = done & ~invalid & ~void
    row_return.copy_(running_return.masked_fill(~counted, 0.0))
    row_length.copy_(running_length * counted)
    running_return.masked_fill_(done, 0.0)
    running_length.masked_fill_(done, 0)
    prev_done.copy_(done)


def targets(
    gamma: float,
    lam: float,
    rho_bar: float,
    c_bar: float,
    bootstrap_truncated: bool,
    scale: float,
    shift: float,
    low: float,
    high: float,
    rewards: Tensor,
    values: Tensor,
    final: Tensor,
    terminated: Tensor,
    truncated: Tensor,
    status: Tensor,
    w: Tensor,
    vs: Tensor,
    advantages: Tensor,
) -> None:
    """Twin of :func:`isaac_appo.learn.target_kernels.targets_kernel`."""
    shaped = ((rewards + shift) * scale).clamp(low, high)
    done, live = terminated | truncated, status == 0
    after = torch.where(truncated, final if bootstrap_truncated else torch.zeros_like(final), values[1:])
    after.masked_fill_(terminated, 0.0)
    delta = w.clamp(max=rho_bar) * (shaped + gamma * after - values[:-1])
    decay = gamma * lam * w.clamp(max=c_bar)
    trace, boot = torch.zeros_like(vs[0]), values[-1]
    for t in reversed(range(len(rewards))):
        v = values[t]
        boot = torch.where(done[t], after[t], boot)
        advantages[t] = torch.where(live[t], shaped[t] + gamma * boot - v, 0.0)
        trace = torch.where(live[t], delta[t] + decay[t] * trace.masked_fill(done[t], 0.0), 0.0)
        vs[t] = v + trace
        boot = lam * vs[t] + (1.0 - lam) * v


TWINS: Dict[str, Callable[..., None]] = {"sample_kernel": sample, "record_kernel": record, "targets_kernel": targets}
"""By the name of the kernel."""


def _launch(kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any] = (), **where: Any) -> None:
    if kernel.__name__ not in TWINS:
        raise NotImplementedError(f"{kernel.__name__} has no torch twin: install Warp (pip install warp-lang)")
    TWINS[kernel.__name__](*inputs, *outputs)


def stand_in_for_warp() -> None:
    """Put a module in the place of Warp, which is not installed; call it before anything imports Warp.

    Kernels stay Python functions that nothing compiles, arrays are tensors, and launches run the twins on torch's
    current stream, so that graphs capture them.
    """
    module = ModuleType(STAND_IN)
    module.__spec__ = ModuleSpec("warp", None)

    def same(x: Any = None, *_: Any, **__: Any) -> Any:
        return x

    def nothing(*_: Any, **__: Any) -> None:
        return None

    passed: List[str] = ["constant", "func", "kernel", "struct", "from_torch", "stream_from_torch"]
    passed += ["uint8", "uint32", "uint64", "int32", "float32", "float64"]
    ignored = ["init", "set_module_options", "get_stream", "set_stream", "capture_begin", "capture_end"]
    for names, value in ((passed, same), (ignored, nothing)):
        for name in names:
            setattr(module, name, value)
    setattr(module, "is_mempool_enabled", lambda device: True)  # noqa: B010 (nothing of Warp's allocates in a graph)
    setattr(module, "config", SimpleNamespace())  # noqa: B010 (a module's attributes are unknown to the type checker)
    setattr(module, "launch", _launch)  # noqa: B010
    sys.modules["warp"] = module
