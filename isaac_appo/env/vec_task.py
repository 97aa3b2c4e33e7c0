"""What the adapters of foreign environments share: copies out of live buffers, broken rows, restarts on resume."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from isaac_appo.env.vec_env import Space, VecEnv
from isaac_appo.sim.engine import EngineError

__all__ = ["ForeignEnv", "plain"]

EVIDENCE = 10
"""Ends of episodes that must all contradict the convention before that is an error: some tasks zero ages on success."""


class ForeignEnv(VecEnv):
    """Persistent copies of what a foreign environment returns, which its next step may rewrite in place."""

    host_synchronous = True  # these environments look at their reset buffer on the host
    unstarted: Tensor
    resumable = False  # none of them can save its physics
    exclusive = True

    def __init__(self, num_envs: int, sizes: Dict[str, int], clip_obs: float, device: torch.device) -> None:
        """`sizes` holds "obs", "action" and, where the critic is asymmetric, "states"."""
        self.num_envs, self.device = num_envs, device
        self.spaces = {
            key: Space((size,), *((-1.0, 1.0) if key == "action" else (-clip_obs, clip_obs)))
            for key, size in sizes.items()
        }
        self.obs = torch.zeros(num_envs, sizes["obs"], device=device)
        self.states = torch.zeros(num_envs, sizes["states"], device=device) if "states" in sizes else None
        self.reward = torch.zeros(num_envs, device=device)
        flags = torch.zeros(6, num_envs, dtype=torch.bool, device=device)
        self.terminated, self.truncated, self.invalid, self.unstarted, self._done, self._before = flags
        self._ends = torch.zeros(2, dtype=torch.int64, device=device)

    def _write_signals(self, reward: Tensor, done: Tensor, time_outs: Optional[Tensor]) -> None:
        """Copy a step's signals: a time-out is one only where the episode ends, and flags of any dtype are taken."""
        self._before.copy_(self._done)
        self.reward.copy_(reward)
        self._done.copy_(done != 0)
        if time_outs is None:
            self.truncated.zero_()
        else:
            torch.logical_and(time_outs.to(self.device) != 0, self._done, out=self.truncated)

    def _write_obs(self, obs: Tensor, states: Optional[Tensor]) -> None:
        self.obs.copy_(obs)
        if self.states is not None and states is not None:
            self.states.copy_(states)

    def _finish(self) -> None:
        """The rule for broken rows: reward 0, zero observation, terminated. Call when all has been written."""
        finite = torch.isfinite(self.obs).all(1) & torch.isfinite(self.reward)
        if self.states is not None:
            finite &= torch.isfinite(self.states).all(1)
        torch.logical_not(finite, out=self.invalid)
        for tensor in (self.states, self.final_obs, self.final_states):
            if tensor is not None:
                tensor.nan_to_num_(0.0, 0.0, 0.0)
        self.obs.masked_fill_(self.invalid.unsqueeze(1), 0.0)
        self.reward.masked_fill_(self.invalid, 0.0)
        self._done |= self.invalid
        self.truncated &= finite
        torch.logical_and(self._done, ~self.truncated, out=self.terminated)

    def _watch(self, age: Optional[Tensor]) -> None:
        """Count ends that contradict the convention: an age of 0 beside done says that the row has been reset."""
        if age is not None and age.dtype != torch.bool:
            reset = age.to(self.device) == 0
            ends = self._done & ~self._before
            contradict = ends & (~reset if self.autoreset == "same_step" else reset)
            self._ends += torch.stack([ends.sum(), contradict.sum()])

    def count_faults(self) -> Tensor:
        """See `VecEnv`: ends of episodes so far, and those among them that contradict the convention."""
        return self._ends

    def check(self, faults: Optional[Sequence[int]] = None) -> None:
        """See `VecEnv`. Errors: EngineError if the env resets at another time than its convention says."""
        ends, contradictions = self._ends.tolist() if faults is None else faults
        if ends >= EVIDENCE and contradictions == ends:
            other = "next_step" if self.autoreset == "same_step" else "same_step"
            raise EngineError(
                f"{self}: at all of {ends} ends of episodes the age of the row says that it is "
                f"{'not reset' if other == 'next_step' else 'reset already'} when done is returned, where "
                f"autoreset={self.autoreset} is the other way round. Use env.autoreset={other}"
            )

    def state_dict(self) -> Dict[str, Any]:
        """The env's own `env_state` only: the physics is not in it, so `resumable` is False."""
        return {"env_state": plain(self.get_env_state(), f"env_state of {self}")}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Take over the `env_state` and start new episodes."""
        self.set_env_state(state["env_state"])
        self.reset()


def plain(value: Any, where: str) -> Any:
    """`value` as a checkpoint takes it: tensors, containers, Python scalars. Errors: EngineError for anything else."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if hasattr(value, "tolist"):  # numpy's arrays and scalars
        return torch.as_tensor(value).clone() if getattr(value, "shape", ()) else value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, dict):
        return {key if isinstance(key, int) else str(key): plain(x, f"{where}[{key!r}]") for key, x in value.items()}
    if isinstance(value, (list, tuple)):
        items: List[Any] = [plain(x, f"{where}[{i}]") for i, x in enumerate(value)]
        return items
    raise EngineError(
        f"{where} is a {type(value).__name__}: a checkpoint holds tensors, numpy arrays, dict, list, tuple, str, int, "
        "float, bool and None. Let get_env_state return those"
    )
