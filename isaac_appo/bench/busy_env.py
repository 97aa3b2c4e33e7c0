"""A synthetic simulator in torch alone: how much of a device it fills, and for how long, can be set."""

from __future__ import annotations

from typing import Dict, Tuple

import torch
from torch import Tensor

from isaac_appo.env.vec_env import Space, VecEnv

__all__ = ["BusyEnv"]


class BusyEnv(VecEnv):
    """Points that actions push about, and in each step ``2 * depth`` matrix products that depend on each other.

    Args:
        width: of the square matrices: the occupancy. 128 fills a multiprocessor or two, 4096 all there are.
        depth: pairs of products: the duration.
    """

    autoreset = "next_step"
    host_synchronous = False
    capturable = True
    max_episode_length = 50

    def __init__(
        self, num_envs: int, device: torch.device, width: int, depth: int, num_obs: int = 60, num_actions: int = 8
    ) -> None:
        self.num_envs, self.device, self.depth = num_envs, device, depth
        self.spaces = {"obs": Space((num_obs,), -5.0, 5.0), "action": Space((num_actions,), -1.0, 1.0)}
        generator = torch.Generator().manual_seed(0)

        def drawn(*shape: int) -> Tensor:
            return (torch.randn(shape, generator=generator) / shape[-1] ** 0.5).to(device)

        self._push, self._weight, self._a = drawn(num_actions, num_obs), drawn(width, width), drawn(width, width)
        self._b = torch.zeros_like(self._a)
        self._phase = (torch.arange(num_envs).view(-1, 1) * 12.9898 + torch.arange(num_obs) * 4.1414).to(device)
        self.obs = torch.zeros(num_envs, num_obs, device=device)
        self.reward, self._age = torch.zeros(2, num_envs, device=device)
        self._clock = torch.zeros(1, device=device)
        flags = torch.zeros(3, num_envs, dtype=torch.bool, device=device)
        self.terminated, self.truncated, self.invalid = flags

    def _start(self) -> Tensor:
        """Where episodes begin: a function of the env and the time."""
        return torch.sin(self._phase + 78.233 * self._clock)

    def reset(self) -> Tensor:
        """See `VecEnv`."""
        for tensor in (self._age, self._clock, self.terminated, self.truncated):
            tensor.zero_()
        self.obs.copy_(self._start())
        return self.obs

    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `VecEnv`."""
        for _ in range(self.depth):
            torch.mm(self._a, self._weight, out=self._b)
            torch.mm(self._b.tanh_(), self._weight, out=self._a)
            self._a.tanh_()
        fresh = self.terminated | self.truncated
        self._clock.add_(1.0)
        self._age.add_(1.0).masked_fill_(fresh, 0.0)
        moved = 0.95 * self.obs + 0.3 * (actions_NA @ self._push)
        self.obs.copy_(torch.where(fresh.unsqueeze(1), self._start(), moved))
        self.reward.copy_((1.0 - self.obs.square().mean(1)).masked_fill_(fresh, 0.0))
        torch.logical_and(self.obs[:, 0].abs() > 1.1, ~fresh, out=self.terminated)
        torch.logical_and(self._age >= self.max_episode_length - 1, ~(fresh | self.terminated), out=self.truncated)
        return self.obs, self.reward, self.terminated, self.truncated

    def _saved(self) -> Dict[str, Tensor]:
        names = ("obs", "reward", "terminated", "truncated", "_age", "_clock")
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> Dict[str, Tensor]:
        """See `VecEnv`. What the products leave behind decides nothing."""
        return {name: tensor.clone() for name, tensor in self._saved().items()}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """See `VecEnv`."""
        for name, tensor in self._saved().items():
            tensor.copy_(state[name])
