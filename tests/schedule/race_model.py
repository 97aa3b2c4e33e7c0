"""Handlers without tensors that notice every race: slabs of canaries, snapshots of version numbers, and a real ledger.

An operation is taken as an interval in time. Whoever touches a slab or a slot of the snapshot ring while another still
uses it, or finds in it something else than what the schedule promises, raises a sentence about it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Dict, Iterator, List, Optional, Tuple, Union

from isaac_appo.rollout.facts import SlabFacts
from isaac_appo.schedule.executors.virtual import Interval
from isaac_appo.schedule.ledger import LagReport, Ledger
from isaac_appo.schedule.program import CALIBRATION, LEARNER, Free, Program, policy_name
from isaac_appo.schedule.throttle import ActorThrottle

Canary = Tuple[int, int, int]
"""(slab, t, version): what a written row holds."""
Row = Union[str, Canary]
POISONED, ACTING, ACTED, STEPPING = "poisoned", "being acted on", "half written", "being stepped"
FREE, COLLECTING, HANDED, TRAINING = "free", "being collected", "handed over", "being trained on"
NONE = -1
"""No snapshot yet."""
ON_EXCESS = ("throttle", "mask", "drop")
NO_ROWS = SlabFacts(0, 0, 0, 0, {})


class RaceError(RuntimeError):
    """Two operations touched the same memory at once, or one of them came too early or too late."""


def _nothing(*args: int) -> None:
    """No effect."""


def call(worker: Optional[int], op: str, *args: int) -> str:
    """How an operation is called in a message."""
    stream = LEARNER if worker is None else policy_name(worker)
    return f"{stream}: {op}({', '.join(map(str, args))})"


class SlabSlot:
    """One slab of a worker's ring, ``T`` rows and the bootstrap row, one environment wide.

    ``caller`` is the worker (``None``: the learner), operation and arguments that a message names.
    """

    __slots__ = ("index", "phase", "rows", "slab", "worker")

    def __init__(self, worker: int, index: int, horizon: int) -> None:
        self.worker, self.index = worker, index
        self.phase, self.slab = FREE, CALIBRATION
        self.rows: List[Row] = [POISONED] * (horizon + 1)

    def __str__(self) -> str:
        return f"slab slot {self.index} of worker {self.worker}"

    def expect(self, phase: str, slab: int, *caller: Any) -> None:
        """Raise unless the slot is in ``phase``, with ``slab`` in it."""
        if self.phase != phase or (self.slab != slab and phase != FREE):
            found = self.phase if self.phase == FREE else f"{self.phase} for slab {self.slab}"
            raise RaceError(f"{call(*caller)} needs {self} {phase} for slab {slab}, but it is {found}")

    def write(self, t: int, old: Row, new: Row, *caller: Any) -> None:
        """Raise unless row ``t`` is ``old``, then make it ``new``."""
        if self.rows[t] != old:
            raise RaceError(f"{call(*caller)} needs row {t} of {self} {old}, but it is {self.rows[t]}")
        self.rows[t] = new

    def versions(self, *caller: Any) -> List[int]:
        """Versions of the ``T`` rows; raises unless each row and the bootstrap carries the canary of this slab."""
        versions: List[int] = []
        for t, row in enumerate(self.rows):
            if isinstance(row, str) or row[0] != self.slab or row[1] != t:
                raise RaceError(f"{call(*caller)} reads row {t} of {self} for slab {self.slab}, but it is {row}")
            versions.append(row[2])
        return versions[:-1]

    def free(self) -> None:
        """Nobody needs the rows any more: poison."""
        self.phase = FREE
        self.rows = [POISONED] * len(self.rows)


class SnapshotSlot:
    """One slot of the snapshot ring."""

    __slots__ = ("index", "pending", "readers", "snapshot", "version")

    def __init__(self, index: int) -> None:
        self.index = index
        self.readers = 0
        self.snapshot = NONE
        self.pending: Optional[int] = None
        self.version = 0

    def __str__(self) -> str:
        return f"snapshot slot {self.index}"

    def expect(self, snapshot: int, *caller: Any) -> None:
        """Raise unless the slot holds ``snapshot``, complete."""
        if self.pending is not None:
            raise RaceError(f"{call(*caller)} is torn: {self} is being written for snapshot {self.pending}")
        if self.snapshot != snapshot:
            raise RaceError(f"{call(*caller)} needs snapshot {snapshot} in {self}, but it holds {self.snapshot}")


class Actor:
    """What a policy stream holds."""

    __slots__ = ("cut", "reading", "snapshot", "version")

    def __init__(self, cut: int) -> None:
        self.cut = cut
        self.reading: Optional[int] = None
        self.snapshot = NONE
        self.version = 0


class RaceModel:
    """Stands in for the pipeline: the same operations, on canaries. One row per step and worker.

    Args:
        program: the schedule.
        on_excess: what becomes of rows above the limit: an error (``throttle``), or they are masked, or all slabs of
            the update dropped.
        on_boundary: called at each boundary, where a checkpoint is consistent.

    Attributes:
        history: the slab of each update, and for each worker the versions of its rows.
        reports: the lag of each update's live rows; zeros where there was none.
    """

    def __init__(
        self,
        program: Program,
        on_excess: str = "throttle",
        on_boundary: Callable[[int], None] = lambda update: None,
    ) -> None:
        if on_excess not in ON_EXCESS:
            raise ValueError(f"on_excess={on_excess} is not one of {', '.join(ON_EXCESS)}")
        self.program, self.on_excess, self.on_boundary = program, on_excess, on_boundary
        workers = range(program.num_workers)
        self.ledger = Ledger([program.horizon for _ in workers], program.max_lag)
        self.slots = [[SlabSlot(w, k, program.horizon) for k in range(program.num_slabs)] for w in workers]
        self.ring = [SnapshotSlot(k) for k in range(program.num_snapshots)]
        self.actors = [Actor(first) for first in program.first_slabs or [CALIBRATION] * program.num_workers]
        self.newest = NONE
        self.version = 0
        self.consumed = program.first_update
        self.history: List[Tuple[int, Tuple[Tuple[int, ...], ...]]] = []
        self.reports: List[LagReport] = []
        self._training: Optional[int] = None
        self._steps_due = program.epochs * program.minibatches
        self._steps = 0
        self._counts = False
        lead, self._every = (program.lead, program.broadcast_every) if isinstance(program, Free) else (0, 1)
        self._throttle = ActorThrottle(self._every * program.horizon, lead)

    def handlers(self) -> Dict[str, Interval]:
        """The operations of a program by name."""
        return {
            "begin": Interval(self._begin, _nothing),
            "adopt": Interval(self._adopt, self._copied),
            "pick": Interval(self._pick, _nothing),
            "copy": Interval(self._copy, self._copied),
            "act": Interval(self._act, self._acted),
            "step": Interval(self._step, self._stepped),
            "bootstrap": Interval(self._bootstrap, self._bootstrapped),
            "cut": Interval(self._cut, self._handed),
            "calibrate": Interval(self._calibrate, self._calibrated),
            "load": Interval(self._load, _nothing),
            "proximal": Interval(self._reader("proximal"), self._reader("proximal")),
            "targets": Interval(self._reader("targets"), self._reader("targets")),
            "minibatch": Interval(self._reader("minibatch"), self._optimized),
            "finish": Interval(self._finish, self._finished),
            "publish": Interval(self._publish, self._published),
            "boundary": Interval(self._boundary, self._saved),
        }

    def gates(self) -> Dict[str, Callable[..., bool]]:
        """The conditions of a program by name."""
        return {"unread": self.is_unread}

    def is_unread(self, snapshot: int) -> bool:
        """Whether no worker is between picking and having copied the slot that ``snapshot`` goes to."""
        slot = self.program.slot
        return all(a.reading is None or slot(a.reading) != slot(snapshot) for a in self.actors)

    def check_end(self) -> None:
        """Raise unless every slab was consumed and every row is accounted for."""
        self._check(self.program.num_updates - 1)
        totals = self.ledger.totals()
        if totals["queued"] or totals["in_flight"] or self.consumed != self.program.num_updates:
            raise RaceError(f"the run ended after {self.consumed} of {self.program.num_updates} updates with {totals}")

    def restart(self, update: int) -> RaceModel:
        """A new model that stands where a checkpoint taken at the boundary of ``update`` stands."""
        cuts = tuple(actor.cut for actor in self.actors)
        program = replace(self.program, first_update=update + 1, first_slabs=cuts)
        new = RaceModel(program, self.on_excess)
        new.ledger.load_state_dict(self.ledger.state_dict())
        new.version, new.newest = self.version, program.newest_snapshot(update + 1)
        for ring_slot, saved in zip(new.ring, self.ring):
            ring_slot.snapshot, ring_slot.version = saved.snapshot, saved.version
        for old in self._waiting(update):
            slab_slot = new._slot(old.worker, old.slab)
            slab_slot.expect(FREE, old.slab, old.worker, "restart", update)
            slab_slot.phase, slab_slot.slab, slab_slot.rows = HANDED, old.slab, list(old.rows)
        return new

    # ------------------------------------------------------------------------------------------------ policy streams

    def _slot(self, worker: int, slab: int) -> SlabSlot:
        slots = self.slots[worker]
        return slots[slab % len(slots)]

    def _begin(self, worker: int, slab: int) -> None:
        slot = self._slot(worker, slab)
        slot.expect(FREE, slab, worker, "begin", slab)
        slot.phase, slot.slab = COLLECTING, slab
        self.ledger.begin(slab, worker)

    def _adopt(self, worker: int, slab: int, snapshot: int) -> None:
        self.actors[worker].reading = snapshot
        self._copy(worker, "adopt")

    def _pick(self, worker: int) -> None:
        actor = self.actors[worker]
        actor.reading = self.newest if self.newest > actor.snapshot else None

    def _copy(self, worker: int, name: str = "copy") -> None:
        snapshot = self.actors[worker].reading
        if snapshot is not None:
            slot = self.ring[self.program.slot(snapshot)]
            slot.expect(snapshot, worker, name)
            slot.readers += 1

    def _copied(self, worker: int, *adopted: int) -> None:
        actor = self.actors[worker]
        snapshot = actor.reading
        if snapshot is not None:
            slot = self.ring[self.program.slot(snapshot)]
            slot.expect(snapshot, worker, "adopt" if adopted else "copy")
            slot.readers -= 1
            actor.reading, actor.snapshot, actor.version = None, snapshot, slot.version

    def _act(self, worker: int, slab: int, t: int) -> None:
        self._write(worker, slab, t, POISONED, ACTING, "act")
        if slab == CALIBRATION:
            return
        if self.actors[worker].snapshot == NONE:
            raise RaceError(f"{call(worker, 'act', slab, t)} has adopted no snapshot")
        if self._throttle.should_pause(slab * self.program.horizon + t, self.consumed // self._every):
            after = f"after {self.consumed} consumed slabs, with {self._throttle}"
            raise RaceError(f"{call(worker, 'act', slab, t)} has run ahead {after}")

    def _acted(self, worker: int, slab: int, t: int) -> None:
        self._write(worker, slab, t, ACTING, ACTED, "act")

    def _step(self, worker: int, slab: int, t: int) -> None:
        self._write(worker, slab, t, ACTED, STEPPING, "step")

    def _stepped(self, worker: int, slab: int, t: int) -> None:
        self._write(worker, slab, t, STEPPING, (slab, t, self.actors[worker].version), "step")

    def _bootstrap(self, worker: int, slab: int) -> None:
        self._write(worker, slab, self.program.horizon, POISONED, STEPPING, "bootstrap")

    def _bootstrapped(self, worker: int, slab: int) -> None:
        canary = (slab, self.program.horizon, self.actors[worker].version)
        self._write(worker, slab, self.program.horizon, STEPPING, canary, "bootstrap")

    def _cut(self, worker: int, next_slab: int) -> None:
        self._slot(worker, next_slab - 1).versions(worker, "cut", next_slab)

    def _handed(self, worker: int, next_slab: int) -> None:
        self._slot(worker, next_slab - 1).phase = HANDED
        self.ledger.finish(next_slab - 1, worker)
        self.actors[worker].cut = next_slab

    def _write(self, worker: int, slab: int, t: int, old: Row, new: Row, name: str) -> None:
        slot = self._slot(worker, slab)
        slot.expect(COLLECTING, slab, worker, name, slab, t)
        slot.write(t, old, new, worker, name, slab, t)

    # ------------------------------------------------------------------------------------------------ learner stream

    def _calibrate(self, update: int) -> None:
        self._take(update, "calibrate")

    def _calibrated(self, update: int) -> None:
        self.ledger.drop(update, "calibration")
        self._release(update)

    def _load(self, update: int) -> None:
        versions = self._take(update, "load")
        facts = self._facts([version for worker in versions for version in worker])
        report = LagReport.of(self.version, facts)
        if self.on_excess == "drop" and report.max > self.ledger.max_lag:
            self.ledger.drop(update, "stale")
            facts, report = NO_ROWS, LagReport.of(self.version, NO_ROWS)
        else:
            report = self.ledger.train(update, self.version, facts)
        self._steps, self._counts = 0, facts.live > 0
        self.history.append((update, versions))
        self.reports.append(report)

    def _facts(self, versions: List[int]) -> SlabFacts:
        live: Dict[int, int] = {}
        oldest = self.version - self.ledger.max_lag if self.on_excess == "mask" else 0
        for version in versions:
            if version >= oldest:
                live[version] = live.get(version, 0) + 1
        rows = sum(live.values())
        return SlabFacts(rows, 0, 0, len(versions) - rows, live)

    def _reader(self, name: str) -> Callable[..., None]:
        return lambda *args: self._hold(args[0], name, *args)

    def _optimized(self, update: int, epoch: int, index: int) -> None:
        self._hold(update, "minibatch", update, epoch, index)
        self._steps += 1

    def _finish(self, update: int) -> None:
        self._hold(update, "finish", update)
        if self._steps != self._steps_due:
            raise RaceError(f"{call(None, 'finish', update)} after {self._steps} of {self._steps_due} minibatches")

    def _finished(self, update: int) -> None:
        self.version += self._counts
        self._release(update)

    def _publish(self, snapshot: int) -> None:
        slot = self.ring[self.program.slot(snapshot)]
        what = "publish", snapshot
        if self._training is not None:
            raise RaceError(f"{call(None, *what)} publishes half of update {self._training}")
        if self.consumed != snapshot:
            raise RaceError(f"{call(None, *what)} comes after {self.consumed} consumed slabs")
        if slot.readers:
            raise RaceError(f"{call(None, *what)} tears {slot}, which {slot.readers} streams are reading")
        slot.pending = snapshot

    def _published(self, snapshot: int) -> None:
        slot = self.ring[self.program.slot(snapshot)]
        slot.snapshot, slot.version, slot.pending = snapshot, self.version, None
        self.newest = snapshot

    def _boundary(self, update: int) -> None:
        self._check(update)
        self.on_boundary(update)

    def _check(self, update: int) -> None:
        """All rows up to ``update`` consumed once, none lost; what a checkpoint would save is there to be read."""
        self.ledger.check()
        totals = self.ledger.totals()
        queued = sum(self.program.horizon for slot in self._waiting(update) if slot.versions(None, "boundary", update))
        consumed = totals["collected"] - totals["queued"] - totals["in_flight"]
        due = (update - CALIBRATION + 1) * self.ledger.rows
        if consumed != due or totals["queued"] != queued:
            found = f"{consumed} of {due} rows consumed and {queued} waiting"
            raise RaceError(f"{call(None, 'boundary', update)} finds {found}, where the ledger has {totals}")

    def _saved(self, update: int) -> None:
        for slot in self._waiting(update):
            slot.versions(None, "boundary", update)

    def _waiting(self, update: int) -> Iterator[SlabSlot]:
        """Slabs handed over beyond ``update``, as a checkpoint saves them."""
        for worker, actor in enumerate(self.actors):
            for slab in range(update + 1, actor.cut):
                slot = self._slot(worker, slab)
                slot.expect(HANDED, slab, None, "boundary", update)
                yield slot

    def _take(self, update: int, name: str) -> Tuple[Tuple[int, ...], ...]:
        """Begin to read a slab of every worker; the versions of its rows."""
        if self._training is not None or update != self.consumed:
            raise RaceError(f"{call(None, name, update)} out of turn: {self.consumed} slabs consumed")
        self._training = update
        versions = []
        for worker in range(self.program.num_workers):
            slot = self._slot(worker, update)
            slot.expect(HANDED, update, None, name, update)
            versions.append(tuple(slot.versions(None, name, update)))
            slot.phase = TRAINING
        return tuple(versions)

    def _hold(self, update: int, *caller: Any) -> None:
        for slots in self.slots:
            slots[update % len(slots)].expect(TRAINING, update, None, *caller)

    def _release(self, update: int) -> None:
        for worker in range(self.program.num_workers):
            self._slot(worker, update).free()
        self._training, self.consumed = None, update + 1
