"""The contract between a vectorised environment and the trainer."""

from __future__ import annotations

import abc
from typing import Any, Dict, NamedTuple, Optional, Sequence, Tuple

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
            same_step: the observation that comes with done is the first of the next episode; the last one is in
            `final_obs` if the env offers it.
            manual: the caller resets; an adapter does, and makes it same_step with `final_obs`.
        host_synchronous: whether `step` itself makes the host wait.
        capturable: of one that does not, whether `step` is kernels alone, so that it may become part of a CUDA graph.
        max_episode_length: steps, dead row included, after which an episode is truncated.
        invalid: [N] bool, rows of the last `step` whose physics or values broke. Such a row is terminated with reward 0
            and a zero observation.
        states: [N, S] float32, what an asymmetric critic sees beside the observation of the last call, or None.
        final_obs, final_states: [N, O] and [N, S] float32, rewritten by `step`: in rows that are done, the true last
            observation and state of the episode. None where the env does not keep them.
        unstarted: [N] bool, rows that were done when `reset()` returned, so that their episodes start with the next
            step; or None if there never are any.
        fault_names: metrics of the counts that `count_faults` gives; empty if they are for `check` alone.
        exclusive: whether a process can hold only one of them, so that evaluation has to use the training one.
        resumable: whether `state_dict` holds all that the future depends on. Where it does not, a resumed run starts
            new episodes.
    """

    num_envs: int
    device: torch.device
    spaces: Dict[str, Space]
    autoreset: str
    host_synchronous: bool
    capturable: bool = True
    max_episode_length: int
    invalid: Tensor
    states: Optional[Tensor] = None
    final_obs: Optional[Tensor] = None
    final_states: Optional[Tensor] = None
    unstarted: Optional[Tensor] = None
    fault_names: Tuple[str, ...] = ()
    resumable: bool = True
    exclusive: bool = False

    @property
    def num_obs(self) -> int:
        """O, values in one observation."""
        return self.spaces["obs"].shape[0]

    @property
    def num_actions(self) -> int:
        """M, values in one action."""
        return self.spaces["action"].shape[0]

    @property
    def num_states(self) -> int:
        """S, values in one state of the asymmetric critic; 0 if there is none."""
        return self.spaces["states"].shape[0] if "states" in self.spaces else 0

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

    def describe(self) -> str:
        """One line on how episodes end here, for the start of a run; empty for our own tasks."""
        return ""

    def set_train_info(self, env_steps: int) -> None:  # noqa: B027 - most envs do not care
        """Told after each update how many env steps have been trained on: what curricula go by."""

    def get_env_state(self) -> Any:
        """rl_games' `env_state` of a checkpoint: curricula and the like, as tensors and plain containers, or None."""
        return None

    def set_env_state(self, state: Any) -> None:  # noqa: B027 - most envs have none
        """Take over the `env_state` of a checkpoint."""

    def count_faults(self) -> Optional[Tensor]:
        """Counts [2] int64 of what went wrong so far, on `device` and without waiting for it.

        None where nothing is counted on the device.
        """
        return None

    def check(self, faults: Optional[Sequence[int]] = None) -> None:  # noqa: B027 - most envs have nothing to check
        """Raise if something went wrong; once per update, with what `count_faults` gave, or with None: look now."""

    def close(self) -> None:  # noqa: B027 - most envs hold nothing
        """Release threads and files."""
