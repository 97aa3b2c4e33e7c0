"""Every metric a run logs: its key, what it means and its unit. The first ones are rl_games' tags, unchanged."""

from __future__ import annotations

from typing import Iterable, NamedTuple


class Metric(NamedTuple):
    meaning: str
    unit: str = ""


MIRRORED = ("rewards", "shaped_rewards", "episode_lengths")
"""Logged as `<name>/step`; the TensorBoard sink adds `/iter` (against updates) and `/time` (against seconds),
as it has one axis only; metrics.csv and W&B have update, env_steps and elapsed_s in every row."""

_FREE_PREFIXES = ("Episode/", "scores/", "lag/rows_at_")  # a task's own terms; the lag histogram


def _mirrored(name: str, meaning: str, unit: str) -> dict[str, Metric]:
    axes = {"step": "env steps", "iter": "updates", "time": "seconds of training"}
    return {f"{name}/{key}": Metric(f"{meaning}, against {axis}", unit) for key, axis in axes.items()}


METRICS: dict[str, Metric] = {
    **_mirrored("rewards", "mean return of the last finished episodes, as the task pays it, no bootstrap", "reward"),
    **_mirrored("shaped_rewards", "mean return after the reward shaper, as the learner sees it", "reward"),
    **_mirrored("episode_lengths", "mean length of the last finished episodes", "env steps"),
    "episodes/finished": Metric("episodes that ended in this update's rows", "episodes"),
    "episodes/truncated": Metric("those of them that the time limit cut", "episodes"),
    "episodes/longest": Metric("length of the longest of them", "env steps"),
    "episodes/shortest": Metric("length of the shortest of them", "env steps"),
    "losses/a_loss": Metric("surrogate policy loss"),
    "losses/c_loss": Metric("value loss"),
    "losses/entropy": Metric("entropy of the policy", "nat"),
    "losses/bounds_loss": Metric("penalty on action means beyond the bounds"),
    "losses/cval_loss": Metric("value loss of the asymmetric critic"),
    "info/last_lr": Metric("learning rate"),
    "info/cval_lr": Metric("learning rate of the asymmetric critic"),
    "info/lr_mul": Metric("factor on learning rate and clip range (1 unless scheduled)"),
    "info/e_clip": Metric("clip range of the probability ratio"),
    "info/kl": Metric("KL since the last visit of the rows, mean over minibatches; steers the adaptive rate", "nat"),
    "info/epochs": Metric("updates so far", "updates"),
    "performance/step_fps": Metric("env steps per second of env.step alone", "1/s"),
    "performance/step_inference_fps": Metric("env steps per second of collection (acting and env.step)", "1/s"),
    "performance/step_inference_rl_update_fps": Metric("env steps per second of wall clock in this iteration", "1/s"),
    "performance/step_time": Metric("env.step alone, per iteration", "s"),
    "performance/step_inference_time": Metric("collection, per iteration", "s"),
    "performance/rl_update_time": Metric("learning, per iteration", "s"),
    "fps/10s": Metric("env steps over wall clock, waiting included, last 10 s", "1/s"),
    "fps/60s": Metric("the same over the last 60 s", "1/s"),
    "fps/300s": Metric("the same over the last 300 s", "1/s"),
    "lag/mean": Metric("mean age of the trained rows' policy", "updates"),
    "lag/max": Metric("greatest age of a trained row's policy", "updates"),
    "lag/sgd_steps": Metric("mean age of the trained rows' policy", "SGD steps"),
    "train/version_diff_avg": Metric("Sample Factory's name for lag/sgd_steps", "SGD steps"),
    "train/version_diff_min": Metric("least age of a trained row's policy", "SGD steps"),
    "train/version_diff_max": Metric("greatest age of a trained row's policy", "SGD steps"),
    "perf/_fps": Metric("Sample Factory's name for performance/step_inference_rl_update_fps", "1/s"),
    "wait/policy_for_slab_or_lead": Metric("all workers waiting for a free slab or for their lead to shrink", "s"),
    "wait/policy_for_version": Metric("all workers waiting for a version that is new enough", "s"),
    "wait/learner_for_slab": Metric("the learner waiting for a slab, or for a snapshot to be read", "s"),
    "ledger/collected": Metric("rows collected; equals the sum of all other ledger entries", "rows"),
    "ledger/trained": Metric("rows that reached a gradient", "rows"),
    "ledger/masked_dead": Metric("rows of the reset step after an episode's end, masked", "rows"),
    "ledger/masked_nan": Metric("rows with non-finite physics, masked", "rows"),
    "ledger/masked_lag": Metric("rows too old for the learner, masked", "rows"),
    "ledger/dropped_calibration": Metric("rows used for the normalisers' first statistics only", "rows"),
    "ledger/dropped_stale": Metric("rows of slabs dropped as too old", "rows"),
    "ledger/dropped_shutdown": Metric("rows collected but not trained when the run stopped", "rows"),
    "ledger/queued": Metric("rows waiting for the learner", "rows"),
    "ledger/in_flight": Metric("rows of the slab being collected", "rows"),
    "idle/policy": Metric("share of the wall clock in which the policy stream waited", "0..1"),
    "idle/learner": Metric("share of the wall clock in which the learner stream waited", "0..1"),
    "kl/prox": Metric("KL of the proximal policy from the new one", "nat"),
    "kl/behaviour": Metric("KL of the behaviour policy from the new one; over (lag + 1)^2, steers the rate too", "nat"),
    "loss/clip_fraction": Metric("share of rows whose ratio was clipped", "0..1"),
    "loss/explained_variance": Metric("1 - Var(target - value) / Var(target)"),
    "loss/grad_norm": Metric("gradient norm before clipping, mean over minibatches"),
    "loss/skipped_steps": Metric("SGD steps skipped for a non-finite loss or gradient", "SGD steps"),
    "policy/std": Metric("mean standard deviation of the action noise"),
    "policy/action_clip_fraction": Metric("share of action components clipped to the bounds", "0..1"),
    "eval/return": Metric("mean return of the last evaluation beside training, one episode per env", "reward"),
    "eval/return_std": Metric("standard deviation of those returns", "reward"),
    "eval/length": Metric("mean length of those episodes", "env steps"),
    "eval/version": Metric("policy version that was evaluated", "updates"),
    "eval/seconds": Metric("wall time of that evaluation, in its own thread", "s"),
    "physics/contact_overflow": Metric("envs that dropped contacts, sim=mujoco_warp; more than 0 ends the run", "envs"),
    "physics/constraint_overflow": Metric("envs that dropped constraints, likewise", "envs"),
    "nan_envs": Metric("envs reset for non-finite physics in this iteration", "envs"),
}


def undocumented(keys: Iterable[str]) -> list[str]:
    """The keys that are neither in METRICS nor a task's own term."""
    return sorted(key for key in keys if key not in METRICS and not key.startswith(_FREE_PREFIXES))
