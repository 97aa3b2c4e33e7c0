"""The collector: everything the policy stream does to fill a slab.

It acts with its own copy of a published version, writes rows and versions, and keeps episode accounts. It never reads
what the learner is writing, never computes a gradient, and in its step there is no host synchronisation of its own.
"""

from __future__ import annotations

import time
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

import torch
from torch import Tensor

from isaac_appo.env.vec_env import VecEnv
from isaac_appo.kernels import launch, wp
from isaac_appo.policy.actor_critic import ActorCritic, PolicyOutput
from isaac_appo.policy.sampling import sample_kernel
from isaac_appo.policy.snapshot import PolicyBuffer
from isaac_appo.rollout.slab import DEAD, LIVE, NAN, Slab

_DEAD, _LIVE, _NAN = wp.constant(DEAD), wp.constant(LIVE), wp.constant(NAN)

AFTER_DONE = {"same_step": 0, "next_step": 1, "next_step_pre": 2}
"""`after_done` of the kernel by the env's autoreset."""

NO_LIMIT = 3.0e38
"""Clip limit of the environment's action when clipping is off."""


@wp.kernel
def record_kernel(
    reward: wp.array(dtype=wp.float32, ndim=1),
    terminated: wp.array(dtype=wp.bool, ndim=1),
    truncated: wp.array(dtype=wp.bool, ndim=1),
    invalid: wp.array(dtype=wp.bool, ndim=1),
    after_done: int,
    prev_done: wp.array(dtype=wp.bool, ndim=1),
    running_return: wp.array(dtype=wp.float32, ndim=1),
    running_length: wp.array(dtype=wp.int32, ndim=1),
    row_reward: wp.array(dtype=wp.float32, ndim=1),
    row_terminated: wp.array(dtype=wp.bool, ndim=1),
    row_truncated: wp.array(dtype=wp.bool, ndim=1),
    row_status: wp.array(dtype=wp.uint8, ndim=1),
    row_return: wp.array(dtype=wp.float32, ndim=1),
    row_length: wp.array(dtype=wp.int32, ndim=1),
) -> None:
    """One thread per env: copy the step into its slab row, classify the row, and close finished episodes.

    ``after_done`` says what the row after ``done`` is: 0 a row like any other, 1 dead, 2 dead to the learner but a step
    of the new episode, whose return and length it counts for and which it may end.
    ``row_length`` is 0 where no episode ended; a broken episode (NAN) ends without being counted.
    """
    env = wp.tid()
    dead = prev_done[env] and after_done > 0
    void = dead and after_done == 1
    broken = invalid[env]
    done = terminated[env] or truncated[env] or broken
    row_reward[env] = reward[env]
    row_terminated[env] = terminated[env]
    row_truncated[env] = truncated[env]
    status = _LIVE
    if dead:
        status = _DEAD
    elif broken:
        status = _NAN
    row_status[env] = wp.uint8(status)
    episode_return = running_return[env]
    episode_length = running_length[env]
    if not void:
        episode_return += reward[env]
        episode_length += 1
    row_return[env] = 0.0
    row_length[env] = 0
    if done and not broken and not void:
        row_return[env] = episode_return
        row_length[env] = episode_length
    if done:
        episode_return = 0.0
        episode_length = 0
    running_return[env] = episode_return
    running_length[env] = episode_length
    prev_done[env] = done


class _SlabViews(NamedTuple):
    """Warp views of one slab, made once: per time step, in the order of the kernels' arguments."""

    sample: List[List[Any]]
    record: List[List[Any]]


def _views(slab: Slab) -> _SlabViews:
    sample: List[List[Any]] = []
    record: List[List[Any]] = []
    for t in range(slab.horizon):
        rows = (slab.actions_TNA, slab.sigma_TNA, slab.neglogp_TN)
        sample.append([wp.from_torch(x[t]) for x in (slab.mu_TNA, *rows)])
        names = ("rewards", "terminated", "truncated", "status", "episode_return", "episode_length")
        record.append([wp.from_torch(getattr(slab, name + "_TN")[t]) for name in names])
    return _SlabViews(sample, record)


def final_source(env: VecEnv, model: ActorCritic) -> Optional[Tensor]:
    """What the critic sees of an episode's end, where ``step`` returns the next episode's start; else None."""
    if env.autoreset != "same_step":
        return None
    return env.final_states if model.central_value is not None else env.final_obs


class Collector:
    """Fills slabs by acting in ``env`` with the version that ``policy`` holds.

    Args:
        env: the environments; those of a ``next_step`` or ``next_step_pre`` env have dead rows, which are marked.
        model: this stream's own copy of the actor-critic, bound to ``policy``.
        policy: the byte buffer that versions are adopted into.
        slabs: the ring of slabs.
        seed: key of the action noise.
        clip_actions: rl_games' switch: the env sees actions clipped to +-1, the log-probability is of the unclipped.
    """

    def __init__(
        self,
        env: VecEnv,
        model: ActorCritic,
        policy: PolicyBuffer,
        slabs: Sequence[Slab],
        seed: int,
        clip_actions: bool,
    ) -> None:
        if env.autoreset not in AFTER_DONE:
            raise ValueError(
                f"autoreset={env.autoreset!r} of {type(env).__name__}: the trainer takes {', '.join(AFTER_DONE)}. "
                "Wrap the env so that its step resets what is done, and keep the last observations in final_obs"
            )
        self.env = env
        self.model = model.requires_grad_(False)
        self.policy = policy
        self.slabs = slabs
        self.seed = seed
        self.env_s = 0.0
        self._limit = 1.0 if clip_actions else NO_LIMIT
        device = env.device
        self.obs = env.reset()
        self._final = final_source(env, model)
        self._normalized = torch.zeros_like(self.obs)
        self._log_std = torch.zeros(env.num_envs, env.num_actions, device=device)
        self._env_actions = torch.zeros(env.num_envs, env.num_actions, device=device)
        self._after_done = AFTER_DONE[env.autoreset]
        self._prev_done = torch.zeros(env.num_envs, dtype=torch.bool, device=device)
        self._take_unstarted()
        self._running_return = torch.zeros(env.num_envs, device=device)
        self._running_length = torch.zeros(env.num_envs, dtype=torch.int32, device=device)
        self._step = torch.zeros(1, dtype=torch.int64, device=device)
        self.faults = torch.zeros(len(slabs), 2, dtype=torch.int64, device=device)
        """What the env's `count_faults` gave at the end of each slab."""
        self._device = str(device)
        self._slab_views = [_views(slab) for slab in slabs]
        self._wp_log_std = wp.from_torch(self._log_std)
        self._wp_env_actions = wp.from_torch(self._env_actions)
        accounts = (self._prev_done, self._running_return, self._running_length)
        self._wp_accounts = [wp.from_torch(x) for x in accounts]
        self._wp_clock = wp.from_torch(self._step)
        self._wp_step: List[Any] = []

    def _take_unstarted(self) -> None:
        if self.env.unstarted is not None:
            self._prev_done.copy_(self.env.unstarted)

    @property
    def global_step(self) -> int:
        """Steps so far, which number the draws of action noise; reading it waits for the device."""
        return int(self._step)

    @torch.no_grad()
    def act(self, slab_index: int, t: int) -> None:
        """Choose the actions of row ``t``, from the observations that the environments stand at."""
        slot = slab_index % len(self.slabs)
        slab = self.slabs[slot]
        slab.obs_TNO[t].copy_(self.obs)
        output = self.model(self.model.running_mean_std.normalize(self.obs, self._normalized))
        slab.mu_TNA[t].copy_(output.mu)
        self._log_std.copy_(output.log_std)
        self._evaluate(slab, t, output)
        slab.version_TN[t].copy_(self.policy.version.expand(self.env.num_envs))
        mu, action, sigma, neglogp = self._slab_views[slot].sample[t]
        launch(
            sample_kernel,
            dim=self.env.num_envs,
            inputs=[self.seed, self._wp_clock, 0, self._limit, mu, self._wp_log_std],
            outputs=[action, self._wp_env_actions, sigma, neglogp],
            device=self._device,
        )

    def step(self, slab_index: int, t: int) -> None:
        """Step the environments with the actions chosen, and write what came of it into row ``t``."""
        self.simulate()
        self.record(slab_index, t)

    def simulate(self) -> None:
        """The environments' part of :meth:`step`: all that may make the host wait."""
        started = time.perf_counter()
        self.obs, *signals = self.env.step(self._env_actions)
        self.env_s += time.perf_counter() - started
        if not self._wp_step:  # an env's outputs are persistent, so one look at them is enough
            self._wp_step = [wp.from_torch(x) for x in (*signals, self.env.invalid)]

    def record(self, slab_index: int, t: int) -> None:
        """The slab's part of :meth:`step`."""
        self._step.add_(1)
        launch(
            record_kernel,
            dim=self.env.num_envs,
            inputs=[*self._wp_step, self._after_done, *self._wp_accounts],
            outputs=self._slab_views[slab_index % len(self.slabs)].record[t],
            device=self._device,
        )
        final_TNX = self.slabs[slab_index % len(self.slabs)].final_TNX
        if final_TNX is not None and self._final is not None:
            final_TNX[t].copy_(self._final)

    @torch.no_grad()
    def bootstrap(self, slab_index: int) -> None:
        """Write the observation and value of row ``T``, and what went wrong in the slab."""
        slab = self.slabs[slab_index % len(self.slabs)]
        slab.obs_TNO[slab.horizon].copy_(self.obs)
        output = self.model(self.model.running_mean_std.normalize(self.obs, self._normalized))
        self._evaluate(slab, slab.horizon, output)
        faults = self.env.count_faults()
        if faults is not None:
            self.faults[slab_index % len(self.slabs)].copy_(faults)

    def _evaluate(self, slab: Slab, t: int, output: PolicyOutput) -> None:
        """The critic's input, if it has its own, and value of row ``t``."""
        if slab.states_TNS is not None and self.env.states is not None:
            slab.states_TNS[t].copy_(self.env.states)
        self.model.denormalized_value(output, self.env.states, slab.values_TN[t])

    def state_dict(self) -> Dict[str, Any]:
        """The cut: all that decides what this stream does next, given the versions it will adopt."""
        return {
            "env": self.env.state_dict(),
            "obs": self.obs.clone(),
            "prev_done": self._prev_done.clone(),
            "running_return": self._running_return.clone(),
            "running_length": self._running_length.clone(),
            "global_step": self._step.clone(),
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Continue from a cut; with the first row of new episodes if the env is not resumable."""
        self.env.load_state_dict(state["env"])
        self._step.fill_(int(state["global_step"]))
        if not self.env.resumable:
            self._take_unstarted()
            return
        self.obs.copy_(state["obs"])
        self._prev_done.copy_(state["prev_done"])
        self._running_return.copy_(state["running_return"])
        self._running_length.copy_(state["running_length"])
