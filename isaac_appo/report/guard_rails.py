"""Signs that a run goes wrong, read off its metrics: each is said once, as a sentence with value, meaning and remedy.

A rail is a pure function of the latest rows. It returns the sentence, None while there is nothing to say yet, or the
empty text once there never will be.
"""

from __future__ import annotations

from collections import deque
from typing import Callable, Deque, List, Mapping, NamedTuple, Optional, Sequence

WINDOW = 100
"""Rows that a rail sees."""
UNMOVED = 50
"""Updates with finished episodes after which a return that never changed is named."""
EPISODES = 20
"""Episodes that must have ended before how they end is judged."""
CLIPPED, CLIPPED_ROWS = 0.95, 5
IDLE_WORTH_A_WORD = 0.25
"""Above this idle share a stream is named in the summary, with the knob to turn."""
IDLE_WORTH_A_WARNING = 0.5
"""Above this one it is named while the run goes on."""

_PPO = "train.params.config"
Row = Mapping[str, float]


class Facts(NamedTuple):
    """What the rails must know of a run beside its metrics."""

    max_episode_length: int
    """Steps, the reset step included."""
    horizon: int
    clip_actions: bool
    overlaps: bool
    """Whether both streams run at the same time."""
    fresh: bool
    """Whether the run began at update 0 in this process."""


Rail = Callable[[Sequence[Row], Facts], Optional[str]]


class GuardRails:
    """Asks every rail after each update until it has said its sentence or never will."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._rows: Deque[Row] = deque(maxlen=WINDOW)
        self._rails: List[Rail] = list(RAILS)

    def look(self, row: Row) -> List[str]:
        """Take the metrics of one update; returns what should be said now."""
        self._rows.append(row)
        rows = list(self._rows)
        answers = [(rail, rail(rows, self._facts)) for rail in self._rails]
        self._rails = [rail for rail, text in answers if text is None]
        return [text for _, text in answers if text]


def idle_advice(policy_idle: float, learner_idle: float, least: float = IDLE_WORTH_A_WORD) -> str:
    """Which stream idled, as a share of the wall clock, and what would use it; empty if neither did above `least`."""
    if policy_idle >= max(least, learner_idle):
        return (
            f"The policy stream idled {100 * policy_idle:.0f} %, waiting for the learner: fewer mini_epochs, a "
            "larger minibatch_size or more schedule.learner_threads would use it"
        )
    if learner_idle >= least:
        return (
            f"The learner stream idled {100 * learner_idle:.0f} %, waiting for samples: more "
            "schedule.policy_threads, or more mini_epochs, would use it"
        )
    return ""


def idle_stream(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    if not facts.overlaps:
        return ""
    if len(rows) < WINDOW:
        return None
    policy, learner = (sum(row[f"idle/{name}"] for row in rows) / len(rows) for name in ("policy", "learner"))
    advice = idle_advice(policy, learner, IDLE_WORTH_A_WARNING)
    return f"{advice} (mean of the last {len(rows)} updates)." if advice else None


def reward_never_moves(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    if not facts.fresh:
        return ""
    ended = [row for row in rows if row.get("episodes/finished", 0) > 0]
    returns = [row["rewards/step"] for row in ended]
    if not returns:
        return None
    if max(returns) - min(returns) > 1e-6 * abs(returns[0]):
        return ""
    if len(ended) < UNMOVED:
        return None
    episodes = sum(row["episodes/finished"] for row in ended)
    return (
        f"The mean return has been {returns[0]:g} since the start, over {len(ended)} updates in which {episodes:.0f} "
        "episodes ended: there is nothing to learn from. Check that the task's reward depends on what the robot does; "
        f"a reward that comes rarely needs more exploration ({_PPO}.entropy_coef, a larger initial sigma)."
    )


def time_outs_unreported(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    ended = [row for row in rows if row.get("episodes/finished", 0) > 0]
    finished = sum(row["episodes/finished"] for row in ended)
    if any(row["episodes/truncated"] for row in ended):
        return ""
    if finished < EPISODES:
        return None
    longest, shortest = max(row["episodes/longest"] for row in ended), min(row["episodes/shortest"] for row in ended)
    if longest != shortest and longest < facts.max_episode_length - 1:
        return None
    which = f"All of {finished:.0f}" if longest == shortest else f"The longest of {finished:.0f}"
    return (
        f"{which} finished episodes lasted {longest:.0f} steps, which looks like a time limit, and none was reported "
        "as truncated: the learner takes running out of time for a failure and values the last states at 0. Let the "
        "environment report truncated, not terminated, where only the time is up."
    )


def failures_as_time_outs(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    ended = [row for row in rows if row.get("episodes/finished", 0) > 0]
    finished, truncated = (sum(row[f"episodes/{name}"] for row in ended) for name in ("finished", "truncated"))
    steps = rows[-1]["info/epochs"] * facts.horizon
    # Staggered resets cut the first episodes short, which is no failure
    if finished < EPISODES or steps <= 2 * facts.max_episode_length:
        return None
    longest = max(row["episodes/longest"] for row in ended)
    if truncated < finished or longest >= facts.max_episode_length - 1:
        return ""
    return (
        f"All of {finished:.0f} finished episodes were reported as truncated, and none lasted longer than "
        f"{longest:.0f} of {facts.max_episode_length} steps: a failure that counts as a time-out costs the policy "
        "nothing, as the value of the last state is added. Let the environment report terminated where it failed."
    )


def actions_clipped(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    if not facts.clip_actions:
        return ""
    shares = [row["policy/action_clip_fraction"] for row in rows[-CLIPPED_ROWS:]]
    if len(shares) < CLIPPED_ROWS or min(shares) <= CLIPPED:
        return None
    return (
        f"{100 * shares[-1]:.0f} % of the action components are clipped to [-1, 1], in {CLIPPED_ROWS} updates in a "
        "row: the environment sees only their sign. Start with less noise (network.space.continuous.sigma_init), "
        f"lower {_PPO}.learning_rate, or use {_PPO}.bounds_loss_coef=0.0001."
    )


def non_finite_rows(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    count = rows[-1]["nan_envs"]
    if not count:
        return None
    return (
        f"The physics of {count:.0f} rows became non-finite in update {rows[-1]['info/epochs']:.0f}. They are masked "
        "and their environments were reset, so the run goes on; too many end it (env.max_nan_fraction). Raise "
        "task.sim.substeps, or check the model's masses and gains."
    )


def skipped_steps(rows: Sequence[Row], facts: Facts) -> Optional[str]:
    count = rows[-1]["loss/skipped_steps"]
    if not count:
        return None
    return (
        f"{count:.0f} SGD steps of update {rows[-1]['info/epochs']:.0f} were skipped, as their loss or gradient was "
        f"not finite; the weights are unharmed. Lower {_PPO}.learning_rate, or use {_PPO}.truncate_grads=True."
    )


RAILS: Sequence[Rail] = (
    idle_stream,
    reward_never_moves,
    time_outs_unreported,
    failures_as_time_outs,
    actions_clipped,
    non_finite_rows,
    skipped_steps,
)
