"""The contract between a vectorised environment and the trainer."""

from __future__ import annotations

import abc
from typing import Dict, NamedTuple, Tuple

import torch
from torch import Tensor

__all__ = ["AUTORESET_MODES", "Space", "VecEnv"]

AUTORESET_MODES = ("next_step", "next_step_pre", "same_step", "manual")


class Space(NamedTuple):
    """A box of float32 values: the shape of one env's row and the bounds of each value."""

    shape: Tuple[int, ...]
    low: float
    high: float


class VecEnv(abc.ABC):
    """N environments that advance together.

    Attributes:
        num_envs: N.
        device: where all tensors live.
        spaces: "obs", "action" and, for an asymmetric critic, "states".
        autoreset: what `step` returns around the end of an episode.
            next_step: the observation that comes with done is the true last one. The next `step` ignores that env's
            action, resets it and returns its first observation with reward 0 and no done: a dead row.
            next_step_pre: as next_step, but that action already acts in the new episode.
            same_step: the observation that comes with done is the first of the next episode.
            manual: the caller resets.
        host_synchronous: whether `step` itself makes the host wait.
        capturable: of one that does not, whether `step` is kernels alone, so that it may become part of a CUDA graph.
        max_episode_length: steps, dead row included, after which an episode is truncated.
        invalid: [N] bool, rows of the last `step` whose physics or values broke. Such a row is terminated with reward 0
            and a zero observation.
    """

    num_envs: int
    device: torch.device
    spaces: Dict[str, Space]
    autoreset: str
    host_synchronous: bool
    capturable: bool = True
    max_episode_length: int
    invalid: Tensor

    @property
    def num_obs(self) -> int:
        """O, values in one observation."""
        return self.spaces["obs"].shape[0]

    @property
    def num_actions(self) -> int:
        """M, values in one action."""
        return self.spaces["action"].shape[0]

    @abc.abstractmethod
    def reset(self) -> Tensor:
        """Start a new episode in every env. Returns obs [N, O] float32, the same tensor as `step`."""

    @abc.abstractmethod
    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """Advance all envs by one control step under actions [N, M] float32.

        Returns obs [N, O] float32, reward [N] float32, terminated [N] bool, truncated [N] bool. They are persistent
        tensors that the next call rewrites. `terminated` wins: no row is both.
        """

    @abc.abstractmethod
    def state_dict(self) -> Dict[str, Tensor]:
        """Copies of everything that the future depends on."""

    @abc.abstractmethod
    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """Go on exactly as the env that was saved."""

    def check(self) -> None:  # noqa: B027 - most envs have nothing to check
        """Raise if the simulation lost something since the last call; once per update."""

    def close(self) -> None:  # noqa: B027 - most envs hold nothing
        """Release threads and files."""
