"""What a topology produces, how hard that presses on policy lag, and the lag that a schedule of ours will show."""

from __future__ import annotations

from typing import NamedTuple, Optional

from isaac_appo.config.minibatch import fit_minibatch
from isaac_appo.config.schema import RunConfig
from isaac_appo.schedule.throttle import lag_within


class Topology(NamedTuple):
    """The numbers of a design; ``envs_per_worker`` is the most that a worker has, ``num_envs`` all of them."""

    rollout_workers: int
    policy_workers: int
    learners: int
    envs_per_worker: int
    trajectory_length: int
    learner_batch_size: int
    num_envs: int

    def produced_samples(self) -> int:
        """Samples of one rollout iteration of all workers."""
        return self.num_envs * self.trajectory_length

    def lag_pressure(self) -> float:
        """``max(0, produced / batch - 1)``: batches by which an iteration outruns one update."""
        return max(0.0, self.produced_samples() / self.learner_batch_size - 1)


class LagPrediction(NamedTuple):
    """Lag of the rows that a run trains on, in updates.

    Attributes:
        low, high: range in steady state, once update ``high`` is reached.
        mean: mean in steady state; ``None`` where threads decide it.
        sgd_steps: SGD steps of an update, so ``lag * sgd_steps`` is the lag in SGD steps.
        collected: highest lag of a row that is collected; what is above ``high`` is masked or dropped.
        law: why.
    """

    low: int
    high: int
    mean: Optional[float]
    sgd_steps: int
    collected: int
    law: str


def predict(config: RunConfig) -> LagPrediction:
    """The lag that this configuration's schedule lets happen; slabs that make no version only lower it."""
    s, horizon = config.schedule, config.ppo.horizon_length
    _, minibatches, _ = fit_minibatch(config.num_envs * horizon, config.ppo.minibatch_size)
    sgd_steps = config.ppo.mini_epochs * minibatches
    if s.name != "free":
        law = f"lockstep: slab i is collected with version max(0, i - {s.lag}), whatever the threads do"
        return LagPrediction(s.lag, s.lag, float(s.lag), sgd_steps, s.lag, law)
    lead = s.max_lead_steps or 2 * s.broadcast_every * horizon
    by_lead = lag_within(lead, horizon)
    high = min(s.max_policy_lag, by_lead)
    limits = f"max_policy_lag = {s.max_policy_lag}, and a lead of {lead} env steps reaches lag {by_lead}"
    law = f"free: a worker waits rather than exceed {limits}"
    if s.on_excess != "throttle":
        fate = {"mask": "masked", "drop": "dropped with its slab"}[s.on_excess]
        law = f"free: {limits}; what is collected above the limit is {fate}"
    collected = high if s.on_excess == "throttle" else by_lead
    return LagPrediction(0, high, 0.0 if high == 0 else None, sgd_steps, collected, law)


def topology_of(config: RunConfig) -> Topology:
    """A run as a design: a policy stream is a rollout and a policy worker, an update takes a slab of every worker."""
    workers, n, horizon = config.schedule.num_workers, config.num_envs, config.ppo.horizon_length
    return Topology(workers, workers, 1, -(-n // workers), horizon, n * horizon, n)
