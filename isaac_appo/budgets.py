"""Thread budgets: how many cores each stream gets, where the user names none.

Streams that take turns (lag 0) get all cores each. Streams that overlap share them: on one or two cores there is
nothing to choose, else two updates with one thread each are timed and the split that balances the two is taken. Budgets
are part of the numerics, so they are printed, stored in the checkpoint, and taken from there by a resumed run.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Callable, Mapping, NamedTuple, Optional, Tuple

from isaac_appo.config import RunConfig

CALIBRATION_UPDATES = 2


class Budgets(NamedTuple):
    """Threads of each policy stream and of the learner stream, and why."""

    policy: int
    learner: int
    reason: str


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def split(cores: int, workers: int, policy_s: float, learner_s: float) -> Tuple[int, int]:
    """Threads ``(p, l)`` with ``workers * p + l <= cores`` for which the slower stream is fastest.

    ``policy_s`` and ``learner_s`` are the times of one update with one thread a stream; both are taken to shrink in
    proportion, which flatters many threads alike on either side.
    """
    most = max(1, (cores - 1) // workers)
    best = min(range(1, most + 1), key=lambda p: (max(policy_s / p, learner_s / max(1, cores - workers * p)), p))
    return best, max(1, cores - workers * best)


def resolve_budgets(
    config: RunConfig,
    stored: Optional[Mapping[str, int]],
    measure: Callable[[RunConfig], Tuple[float, float]],
    cores: int,
) -> Tuple[RunConfig, Budgets]:
    """The configuration with both budgets filled in.

    Args:
        stored: budgets of the checkpoint that is resumed, if there is one.
        measure: seconds of one update on the policy and on the learner stream, one thread each.
        cores: cores to share out.
    """
    s = config.schedule
    policy, learner, workers = s.policy_threads, s.learner_threads, s.num_workers
    if policy and learner:
        reason = "as asked"
    elif stored is not None:
        policy, learner = policy or int(stored["policy"]), learner or int(stored["learner"])
        reason = "as in the checkpoint"
    elif s.executor == "cuda":
        policy = learner = 1
        reason = "the host only enqueues"
    elif policy or learner:
        policy, learner = policy or max(1, (cores - learner) // workers), learner or max(1, cores - workers * policy)
        reason = f"what was asked, and the rest of {cores} cores"
    elif s.name != "free" and s.lag == 0:
        policy = learner = cores
        reason = f"all of {cores} cores, in turns"
    elif config.task.package:
        policy, learner = 1, max(1, cores - 1)
        reason = f"one, and the rest of {cores} cores: {config.task.package} has one simulation, so none to try on"
    elif cores <= workers + 1:
        policy = learner = 1
        reason = f"one each, on {cores} cores"
    else:
        times = measure(_with(config, 1, 1))
        policy, learner = split(cores, workers, *times)
        reason = f"{cores} cores shared by need: {times[0]:.3f} s and {times[1]:.3f} s an update with one thread each"
    return _with(config, policy, learner), Budgets(policy, learner, reason)


def _with(config: RunConfig, policy: int, learner: int) -> RunConfig:
    return replace(config, schedule=replace(config.schedule, policy_threads=policy, learner_threads=learner))


def measure_update(config: RunConfig) -> Tuple[float, float]:
    """Run a few updates in turns, and time them: seconds per update on the policy and on the learner stream."""
    from isaac_appo.build import build_program, build_workers, learner_settings, model_maker, pipeline_settings
    from isaac_appo.meter import policy_seconds
    from isaac_appo.schedule.pipeline import Pipeline
    from isaac_appo.schedule.program import LEARNER

    short = replace(config, max_iterations=CALIBRATION_UPDATES, schedule=replace(config.schedule, executor="inline"))
    envs = build_workers(short, "")
    learner = learner_settings(short)
    make_model = model_maker(short, envs[0].num_obs, envs[0].num_actions)
    program = build_program(short, learner.minibatches)
    pipeline = Pipeline(envs, make_model, program, pipeline_settings(short), learner)
    pipeline.run()
    for env in envs:
        env.close()
    assert pipeline.executor is not None
    slabs = CALIBRATION_UPDATES + 1  # the calibration slab is collected too
    return policy_seconds(pipeline.executor) / slabs, pipeline.executor.busy_s[LEARNER] / CALIBRATION_UPDATES
