"""The contract of an asynchronous trainer as data: roles, queues, and what each operation may write.

Rollout workers only step environments, policy workers only choose actions and keep nothing, and the learner alone
consumes trajectories and changes parameters. Queue messages carry indices of buffers, never what the buffers hold.
Here a worker's policy stream is both a rollout worker and a policy worker, operation by operation.
"""

from __future__ import annotations

from typing import Dict, FrozenSet, NamedTuple, Tuple

ROLLOUT, POLICY, LEARNER = "rollout_worker", "policy_worker", "learner"

LIMITATION = (
    "This is a contract and an estimate, not a throughput claim: IPC, device scheduling and the variance of "
    "environments are abstracted away. Measure with a wall clock."
)


class Role(NamedTuple):
    """One component: what it is for and what it must never do."""

    component: str
    summary: str
    duties: Tuple[str, ...]
    never: Tuple[str, ...]


ROLES = (
    Role(
        ROLLOUT,
        "environment-only",
        ("step environments", "write transition fields"),
        ("compute gradients", "choose actions", "compute returns or advantages", "consume completed trajectories"),
    ),
    Role(
        POLICY,
        "stateless",
        ("batch observation-buffer indices", "return action-buffer indices", "adopt published weights"),
        ("modify rewards or returns", "keep state between requests", "compute gradients", "update parameters"),
    ),
    Role(
        LEARNER,
        "the only consumer of completed trajectories and the only one that updates parameters, for a policy",
        ("consume completed trajectories", "update trainable parameters", "publish policy updates"),
        ("step environments", "share a policy's trajectories or parameters with a second learner"),
    ),
)


class Queue(NamedTuple):
    """One queue: who fills it, who empties it, what a message holds, and what stands for it in this trainer."""

    name: str
    producer: str
    consumer: str
    payload: str
    here: str
    """The program's operations and events that carry it."""
    steps: Tuple[str, ...]
    """Their names, ``event/`` for one event of each worker."""


QUEUES = (
    Queue(
        "observation_requests", ROLLOUT, POLICY, "observation-buffer indices (worker, slab, t)",
        "step(worker, slab, t - 1) comes before act(worker, slab, t) on the worker's stream; before the first row, "
        "wait free[slab]", ("act", "free"),
    ),
    Queue(
        "action_replies", POLICY, ROLLOUT, "action-buffer indices (worker, slab, t)",
        "act(worker, slab, t) comes before step(worker, slab, t) on the worker's stream", ("step",),
    ),
    Queue(
        "completed_trajectories", ROLLOUT, LEARNER, "trajectory-buffer indices (worker, slab)",
        "record ready/worker[slab]; given back by record free[slab]", ("ready/", "free"),
    ),
    Queue(
        "policy_updates", LEARNER, POLICY, "snapshot index",
        "publish(snapshot), record snapshot[s]; read by adopt or pick and copy, given back by record adopted/worker",
        ("publish", "snapshot", "adopted/"),
    ),
)  # fmt: skip


class Operation(NamedTuple):
    """What an operation of the running pipeline may do."""

    role: str
    """Whose work it is; only a learner's operation may record gradients."""
    writes: FrozenSet[str]
    """Fields it may change: ``slab.*``, all of the learner's ``batch``, the ``weights`` that are trained, the ring of
    ``snapshots``, and ``acting``, the workers' own copies of the weights."""
    last_row: bool = False
    """Of the slab fields that it may write, it may write the last row only."""


def _may(role: str, *writes: str, last_row: bool = False) -> Operation:
    return Operation(role, frozenset(writes), last_row)


_ACTED = tuple(f"slab.{name}" for name in ("obs", "states", "actions", "mu", "sigma", "neglogp", "values", "version"))
_STEPPED = ("rewards", "terminated", "truncated", "status", "episode_return", "episode_length", "final")

OPERATIONS: Dict[str, Operation] = {
    "begin": _may(POLICY),
    "adopt": _may(POLICY, "acting"),
    "pick": _may(POLICY),
    "copy": _may(POLICY, "acting"),
    "act": _may(POLICY, *_ACTED),
    "bootstrap": _may(POLICY, "slab.obs", "slab.states", "slab.values", last_row=True),
    "step": _may(ROLLOUT, *(f"slab.{name}" for name in _STEPPED)),
    "cut": _may(ROLLOUT),
    "calibrate": _may(LEARNER, "weights"),
    "load": _may(LEARNER, "batch", "slab.status"),
    "proximal": _may(LEARNER, "batch"),
    "targets": _may(LEARNER, "batch", "weights"),
    "minibatch": _may(LEARNER, "batch", "weights"),
    "finish": _may(LEARNER, "weights"),
    "publish": _may(LEARNER, "snapshots"),
    "boundary": _may(LEARNER),
}
