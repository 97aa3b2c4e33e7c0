"""One iteration as lists of operations on two streams, with events between them. Executors interpret it.

The program knows nothing of tensors. Stream ``P`` simulates and acts, stream ``L`` learns::

    P, slab i:    wait free[i - S] . begin . wait snapshot[v(i)] . adopt v(i) . T x act . bootstrap . cut
                  . record ready[i]
    L, update u:  wait ready[u] . load . proximal . targets . E x M minibatches . finish . wait adopted[...]
                  . publish u+1 . record snapshot[u+1], free[u] . boundary

With ``v(i) = max(0, i - lag)`` slab ``i`` is trained by update ``i`` at a lag of exactly ``min(i, lag)``, whatever the
threads do: that is ``lockstep``, and ``lag = 0`` is ``sync``, synchronous PPO, by the same program. Slab -1 calibrates
the observation statistics and is dropped.
"""

from __future__ import annotations

from typing import Iterator, List, NamedTuple, Tuple, Union


class Op(NamedTuple):
    """Run the handler ``name`` with ``args``."""

    name: str
    args: Tuple[int, ...] = ()


class Wait(NamedTuple):
    """Block the stream until ``event`` has been recorded with an index of at least ``at``."""

    event: str
    at: int


class Record(NamedTuple):
    """Record ``event`` as of ``at``. Indices of one event only grow."""

    event: str
    at: int


Step = Union[Op, Wait, Record]
CALIBRATION = -1
"""Index of the calibration slab."""


class Program(NamedTuple):
    """The fixed-lag schedule (``sync`` and ``lockstep``).

    Attributes:
        horizon: T, environment steps per slab.
        epochs, minibatches: E and M of an update.
        lag: updates between the version a slab is collected with and the update that trains on it.
        num_updates: updates of the whole run.
        first_slab, first_update: where this process begins; a resumed run begins late.
    """

    horizon: int
    epochs: int
    minibatches: int
    lag: int
    num_updates: int
    first_slab: int = CALIBRATION
    first_update: int = CALIBRATION

    @property
    def num_slabs(self) -> int:
        """Slabs in the ring: one being trained on, and one per update of lag being collected."""
        return self.lag + 1

    @property
    def num_snapshots(self) -> int:
        """Published versions that must be kept: all that a slab still to be collected may adopt."""
        return max(2, self.lag + 1)

    def version_of(self, slab: int) -> int:
        """The version that slab ``slab`` is collected with."""
        return max(0, slab - self.lag)

    def last_reader(self, version: int) -> int:
        """The last slab that adopts ``version``."""
        return version + self.lag

    def policy_stream(self) -> Iterator[Step]:
        """All steps of stream P."""
        for slab in range(self.first_slab, self.num_updates):
            yield from self.policy_steps(slab)

    def learner_stream(self) -> Iterator[Step]:
        """All steps of stream L."""
        for update in range(self.first_update, self.num_updates):
            yield from self.learner_steps(update)

    def policy_steps(self, slab: int) -> List[Step]:
        """Steps of stream P for one slab."""
        steps: List[Step] = []
        if slab - self.num_slabs >= CALIBRATION:
            steps.append(Wait("free", slab - self.num_slabs))
        steps.append(Op("begin", (slab,)))
        if slab != CALIBRATION:
            version = self.version_of(slab)
            steps += [Wait("snapshot", version), Op("adopt", (slab, version)), Record("adopted", slab)]
        steps += [Op("act", (slab, t)) for t in range(self.horizon)]
        # the cut is taken before the slab is handed over, so that a checkpoint always finds one past what was trained
        return [*steps, Op("bootstrap", (slab,)), Op("cut", (slab + 1,)), Record("ready", slab)]

    def learner_steps(self, update: int) -> List[Step]:
        """Steps of stream L for one update."""
        if update == CALIBRATION:
            return [Wait("ready", update), Op("calibrate", (update,)), *self._publish(0, update)]
        train = [Op("minibatch", (update, e, m)) for e in range(self.epochs) for m in range(self.minibatches)]
        head: List[Step] = [Wait("ready", update), Op("load", (update,)), Op("proximal", (update,))]
        tail: List[Step] = [Op("finish", (update,)), *self._publish(update + 1, update), Op("boundary", (update,))]
        return [*head, Op("targets", (update,)), *train, *tail]

    def _publish(self, version: int, update: int) -> List[Step]:
        overwritten = version - self.num_snapshots
        steps: List[Step] = []
        if overwritten >= 0:
            steps.append(Wait("adopted", self.last_reader(overwritten)))
        return [*steps, Op("publish", (version,)), Record("snapshot", version), Record("free", update)]
