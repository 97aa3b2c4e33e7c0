"""One iteration as lists of operations on streams, with events between them. Executors interpret it.

A program knows nothing of tensors. Each of ``G`` policy streams simulates and acts for its shard of the environments,
the learner stream ``L`` learns::

    P, slab i:   wait free[i - S] . begin . { waits of the schedule . adopt . act . step } x T . bootstrap . cut
                 . record ready[i]
    L, slab i:   wait ready[i] of every worker . load . proximal . targets . E x M minibatches . finish
                 . wait until the snapshot's slot is unread . publish . record snapshot[i + 1], free[i] . boundary

Slabs are numbered by the update that consumes them, and so are snapshots: snapshot ``s`` holds the weights as of ``s``
consumed slabs. The *version* that rows carry counts updates that changed the weights; the two are equal unless a slab
was dropped or had no live row. Slab -1 calibrates the observation statistics and is dropped.

``Lockstep`` fixes who reads what: slab ``i`` is collected with snapshot ``max(0, i - lag)``, whatever the threads do.
``lag = 0`` is ``sync``, synchronous PPO, by the same program. ``Free`` lets the policy streams run ahead under limits.
"""

from __future__ import annotations

import abc
import math
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, NamedTuple, Tuple, Union

from isaac_appo.schedule.throttle import ActorThrottle

LEARNER = "learner"
CALIBRATION = -1
"""Index of the calibration slab."""


class Op(NamedTuple):
    """Run the handler ``name`` with ``args``. Operations of a policy stream take its worker first."""

    name: str
    args: Tuple[int, ...] = ()


class Wait(NamedTuple):
    """Block the stream until ``event`` has been recorded with an index of at least ``at``."""

    event: str
    at: int


class Gate(NamedTuple):
    """Block the stream until the condition ``name`` holds for ``args``; asked anew at each record of any event."""

    name: str
    args: Tuple[int, ...] = ()


class Record(NamedTuple):
    """Record ``event`` as of ``at``. Indices of one event only grow."""

    event: str
    at: int


Step = Union[Op, Wait, Gate, Record]


def shard_sizes(num_envs: int, num_workers: int) -> List[int]:
    """Environments of each worker: as equal as can be, the first ones larger."""
    return [num_envs // num_workers + (w < num_envs % num_workers) for w in range(num_workers)]


def policy_name(worker: int) -> str:
    """Name of the stream of a worker."""
    return f"policy/{worker}"


def ready(worker: int) -> str:
    """Event: the worker has handed a slab over."""
    return f"ready/{worker}"


def adopted(worker: int) -> str:
    """Event: the worker has finished copying a snapshot."""
    return f"adopted/{worker}"


@dataclass(frozen=True)
class Program(abc.ABC):
    """What the schedules share.

    Attributes:
        horizon: T, environment steps per slab.
        epochs, minibatches: E and M of an update.
        num_updates: slabs that the learner consumes in the whole run.
        num_workers: G, policy streams; each fills slab ``i`` of its own ring.
        first_update: where the learner of this process begins; a resumed run begins late.
        first_slabs: where each worker begins.
    """

    horizon: int
    epochs: int
    minibatches: int
    num_updates: int
    num_workers: int = 1
    first_update: int = CALIBRATION
    first_slabs: Tuple[int, ...] = ()

    @property
    @abc.abstractmethod
    def num_slabs(self) -> int:
        """S, slabs in the ring of each worker."""

    @property
    @abc.abstractmethod
    def num_snapshots(self) -> int:
        """R, slots of the snapshot ring."""

    @property
    @abc.abstractmethod
    def max_lag(self) -> int:
        """The largest lag that may be trained on, in updates."""

    @abc.abstractmethod
    def slot(self, snapshot: int) -> int:
        """The slot that a snapshot is published to."""

    @abc.abstractmethod
    def adopt_steps(self, worker: int, slab: int, t: int) -> List[Step]:
        """What comes before row ``t`` of a slab: waits, and how a snapshot is adopted."""

    @abc.abstractmethod
    def publish_steps(self, snapshot: int) -> List[Step]:
        """How the learner publishes the weights as of ``snapshot`` consumed slabs, if it does."""

    def marks(self) -> Dict[str, int]:
        """What had been recorded before a resumed run begins; nothing for a new one."""
        if self.first_update == CALIBRATION:
            return {}
        marks = {"free": self.first_update - 1, "snapshot": self.newest_snapshot(self.first_update)}
        for worker, slab in enumerate(self.first_slabs):
            marks[ready(worker)] = marks[adopted(worker)] = slab - 1
        return marks

    def newest_snapshot(self, consumed: int) -> int:
        """The newest snapshot once ``consumed`` slabs have been consumed."""
        return consumed

    def streams(self) -> Dict[str, Iterator[Step]]:
        """All streams by name."""
        workers = {policy_name(w): self.policy_stream(w) for w in range(self.num_workers)}
        return {**workers, LEARNER: self.learner_stream()}

    def policy_stream(self, worker: int) -> Iterator[Step]:
        """All steps of a worker."""
        first = self.first_slabs[worker] if self.first_slabs else CALIBRATION
        for slab in range(first, self.num_updates):
            yield from self.policy_steps(worker, slab)

    def learner_stream(self) -> Iterator[Step]:
        """All steps of the learner."""
        for update in range(self.first_update, self.num_updates):
            yield from self.learner_steps(update)

    def policy_steps(self, worker: int, slab: int) -> List[Step]:
        """Steps of a worker for one slab."""
        steps: List[Step] = []
        if slab - self.num_slabs >= CALIBRATION:
            steps.append(Wait("free", slab - self.num_slabs))
        steps.append(Op("begin", (worker, slab)))
        for t in range(self.horizon):
            if slab != CALIBRATION:
                steps += self.adopt_steps(worker, slab, t)
            steps += [Op("act", (worker, slab, t)), Op("step", (worker, slab, t))]
        # the cut is taken before the slab is handed over, so that a checkpoint always finds one past what was trained
        last: List[Step] = [Op("bootstrap", (worker, slab)), Op("cut", (worker, slab + 1)), Record(ready(worker), slab)]
        return steps + last

    def learner_steps(self, update: int) -> List[Step]:
        """Steps of the learner for one slab of every worker."""
        waits: List[Step] = [Wait(ready(w), update) for w in range(self.num_workers)]
        publish = [*self.publish_steps(update + 1), Record("free", update)]
        if update == CALIBRATION:
            return [*waits, Op("calibrate", (update,)), *publish]
        train = [Op("minibatch", (update, e, m)) for e in range(self.epochs) for m in range(self.minibatches)]
        head = [Op("load", (update,)), Op("proximal", (update,)), Op("targets", (update,))]
        return [*waits, *head, *train, Op("finish", (update,)), *publish, Op("boundary", (update,))]


@dataclass
class Switch:
    """The slab from which on a lockstep run is synchronous; set while it runs, for slabs that nobody has begun."""

    at: int = 2**62


@dataclass(frozen=True)
class Lockstep(Program):
    """Slab ``i`` is collected with snapshot ``max(0, i - lag)`` and trained on at a lag of exactly ``min(i, lag)``.

    From slab ``switch.at`` on, the lag is 0.
    """

    lag: int = 1
    switch: Switch = field(default_factory=Switch, compare=False)

    @property
    def num_slabs(self) -> int:
        """One being trained on, and one per update of lag being collected."""
        return self.lag + 1

    @property
    def num_snapshots(self) -> int:
        """All that a slab still to be collected may adopt."""
        return max(2, self.lag + 1)

    @property
    def max_lag(self) -> int:
        """The lag itself."""
        return self.lag

    def slot(self, snapshot: int) -> int:
        """Round and round."""
        return snapshot % self.num_snapshots

    def snapshot_of(self, slab: int) -> int:
        """The snapshot that slab ``slab`` is collected with."""
        return max(0, slab - self.lag) if slab < self.switch.at else slab

    def last_reader(self, snapshot: int) -> int:
        """The last slab that adopts ``snapshot`` or an older one."""
        return snapshot if snapshot >= self.switch.at else min(snapshot + self.lag, self.switch.at - 1)

    def adopt_steps(self, worker: int, slab: int, t: int) -> List[Step]:
        """Once, before the first row."""
        if t > 0:
            return []
        snapshot = self.snapshot_of(slab)
        adopt = Op("adopt", (worker, slab, snapshot))
        return [Wait("snapshot", snapshot), adopt, Record(adopted(worker), slab)]

    def publish_steps(self, snapshot: int) -> List[Step]:
        """Always, when the last reader of what is overwritten is done."""
        overwritten = snapshot - self.num_snapshots
        steps: List[Step] = []
        if overwritten >= 0:
            steps += [Wait(adopted(w), self.last_reader(overwritten)) for w in range(self.num_workers)]
        return [*steps, Op("publish", (snapshot,)), Record("snapshot", snapshot)]


@dataclass(frozen=True)
class Free(Program):
    """Policy streams adopt the newest snapshot before every step, and run ahead only as far as the limits allow.

    Attributes:
        max_policy_lag: the largest lag, in updates, at which a row may be trained on.
        lead: run-ahead in env steps per worker beyond what the learner has consumed (never 0 here).
        broadcast_every: the weights are published after every so many consumed slabs.
        throttle: wait rather than collect a row that could come to exceed ``max_policy_lag``. Switched off, such rows
            reach the learner, which masks or drops them.
    """

    max_policy_lag: int = 1
    lead: int = 0
    broadcast_every: int = 1
    throttle: bool = True

    @property
    def num_slabs(self) -> int:
        """As many as the lead can fill, and two at least: one to train on and one to collect."""
        return max(2, math.ceil(self.lead / self.horizon))

    @property
    def num_snapshots(self) -> int:
        """Two: the newest, and the one that is written next."""
        return 2

    @property
    def max_lag(self) -> int:
        """The limit itself."""
        return self.max_policy_lag

    def newest_snapshot(self, consumed: int) -> int:
        """The last multiple of ``broadcast_every``."""
        return consumed - consumed % self.broadcast_every

    def slot(self, snapshot: int) -> int:
        """Round and round, over what is published."""
        return snapshot // self.broadcast_every % self.num_snapshots

    def adopt_steps(self, worker: int, slab: int, t: int) -> List[Step]:
        """Before every row: the lead, the law, then the newest snapshot there is.

        The law: update ``i`` is at most ``i - s`` versions past snapshot ``s``, so ``s >= i - max_policy_lag`` bounds
        the lag of the row when it is trained on, whatever the learner does until then.
        """
        sent = slab * self.horizon + t
        steps: List[Step] = []
        broadcasts = ActorThrottle(self.broadcast_every * self.horizon, self.lead).broadcasts_needed(sent)
        if broadcasts > 0:
            steps.append(Wait("free", broadcasts * self.broadcast_every - 1))
        if self.throttle and slab > self.max_policy_lag:
            steps.append(Wait("snapshot", slab - self.max_policy_lag))
        elif sent == 0:
            steps.append(Wait("snapshot", 0))
        return [*steps, Op("pick", (worker,)), Op("copy", (worker,)), Record(adopted(worker), sent)]

    def publish_steps(self, snapshot: int) -> List[Step]:
        """Every ``broadcast_every`` slabs, into the slot that no worker is reading."""
        if snapshot % self.broadcast_every:
            return []
        return [Gate("unread", (snapshot,)), Op("publish", (snapshot,)), Record("snapshot", snapshot)]
