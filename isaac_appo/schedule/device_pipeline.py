"""The pipeline on a GPU: the same operations, each split into what the host knows and what the device will do.

The host decides by what it has enqueued. It knows which snapshot every row is collected with, hence the lag, and
applies the law before the work exists; the device masks by the versions that it recorded itself, so that no older row
reaches a gradient whatever the host believes. What only the device knows (rows, episodes, losses) is read two updates
later and entered in the ledger then. At updates where the run wants to stand still, to save or to end, the device is
drained: a checkpoint is the same as one that was taken on the CPU.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Any, Deque, Dict, List, Mapping, Optional

from torch import Tensor

from isaac_appo.rollout.facts import SlabFacts
from isaac_appo.rollout.slab import episodes_of
from isaac_appo.schedule.executors.base import Executor, Handler
from isaac_appo.schedule.executors.cuda import COPY, CudaExecutor
from isaac_appo.schedule.executors.device import CudaDevice, Device, Event
from isaac_appo.schedule.ledger import LagViolation
from isaac_appo.schedule.outbox import BEHIND, Outbox
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.schedule.program import CALIBRATION, LEARNER, policy_name

SOLO_UPDATES = 3
"""Updates that are timed with the streams taking turns, once all graphs are captured."""


class DevicePipeline(Pipeline):
    """Builds and runs all streams on one device. See :class:`Pipeline`.

    Args:
        device: the layer to enqueue on; CUDA unless given.
    """

    def __init__(self, *args: Any, device: Optional[Device] = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self.device = CudaDevice(self.workers[0].env.device) if device is None else device
        self._version = self.learner.version
        self._snapshot_versions = [self._version] * self.program.num_snapshots
        self._acting = [self._version] * len(self.workers)
        self._slab_versions = [[self._version] * self.program.num_slabs for _ in self.workers]
        self._reads: Dict[int, Dict[int, Event]] = {}
        self._lag_trained, self._empty = 0, False
        self._urgent = "policy"
        self._dropped: Dict[int, bool] = {}
        self._pending: Deque[int] = deque()
        self.outbox = Outbox(self.device, self._host_numbers())

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See :class:`Pipeline`."""
        super().load_state_dict(state)
        self._version = self.learner.version
        self._snapshot_versions = [int(self.ring.version(slot)) for slot in range(self.program.num_snapshots)]
        self._slab_versions = [[int(slab.version_TN[0, 0]) for slab in worker.slabs] for worker in self.workers]

    def handlers(self) -> Dict[str, Handler]:
        """See :class:`Pipeline`. What is enqueued here is looked up when it is, so that a test can wrap it."""
        last = self.program.epochs - 1
        shuffle = self.learner.settings.shuffle
        return {
            **super().handlers(),
            "act": self._act,
            "step": self._step,
            "bootstrap": lambda worker, slab: self._launch(
                ("bootstrap", self._slot(slab)), self.workers[worker].collector.bootstrap, slab
            ),
            "proximal": lambda index: self._learn(("proximal", self._slot(index), self._lag_trained > 0), index),
            "targets": lambda index: self._learn(("targets", self._slot(index)), index),
            "minibatch": lambda update, epoch, index: self._learn(
                ("minibatch", index, epoch == last, shuffle and index == 0 and epoch), update, epoch, index
            ),
        }

    def _make_executor(self) -> Executor:
        program = self.program
        blocking = any(worker.env.host_synchronous for worker in self.workers)
        turn = math.ceil(program.epochs * program.minibatches / (2 * program.horizon)) if blocking else 1
        first = max(program.first_update, 0) + program.num_slabs + 2
        solo = range(first, first + SOLO_UPDATES) if program.max_lag > 0 else range(0)
        gates = {"unread": self._is_unread}
        self._cuda = CudaExecutor(self.handlers(), gates, self.device, self.settings.graphs, turn, solo)
        return self._cuda

    def _launch(self, key: Any, work: Any, *args: Any, blocking: bool = False) -> None:
        self._cuda.launch(key, work, *args, blocking=blocking)

    def _learn(self, key: Any, *args: int) -> None:
        self._launch(None if self._empty else key, getattr(self.learner, key[0]), *args)

    def _slot(self, slab: int) -> int:
        return slab % self.program.num_slabs

    # ------------------------------------------------------------------------------------------------ policy streams

    def _adopt(self, worker: int, slab: int, snapshot: int) -> None:
        slot = self.program.slot(snapshot)
        self._launch(None, self.ring.adopt, self.workers[worker].policy, slot)
        self.workers[worker].held = snapshot
        self._acting[worker] = self._snapshot_versions[slot]

    def _pick(self, worker: int) -> None:
        """Choose the newest snapshot that the device has finished, or what the law has made the stream wait for."""
        w, newest = self.workers[worker], self._newest
        due = self._cuda.waited.get((policy_name(worker), "snapshot"), CALIBRATION)
        if newest > due and not self._cuda.happened("snapshot", newest):
            newest = newest if self._previous(newest) < due else self._previous(newest)
        w.picked = newest if newest > w.held else None

    def _previous(self, snapshot: int) -> int:
        """The snapshot that was published before; it is not overwritten before what is enqueued now has read it."""
        return self.program.newest_snapshot(snapshot - 1) if snapshot > 0 else CALIBRATION

    def _copy(self, worker: int) -> None:
        picked = self.workers[worker].picked
        if picked is None:
            return
        self._cuda.wait_for("snapshot", picked)
        super()._copy(worker)
        self._reads.setdefault(self.program.slot(picked), {})[worker] = self._cuda.record_here()

    def _is_unread(self, snapshot: int) -> bool:
        """See :class:`Pipeline`; the learner's stream then waits for the copies that have been enqueued."""
        if not super()._is_unread(snapshot):
            return False
        for event in self._reads.pop(self.program.slot(snapshot), {}).values():
            self._cuda.wait_here(event)
        return True

    def _act(self, worker: int, slab: int, t: int) -> None:
        if t == 0:  # later rows are collected with the same version or a newer one
            self._slab_versions[worker][self._slot(slab)] = self._acting[worker]
        self._launch(("act", self._slot(slab), t), self.workers[worker].collector.act, slab, t)

    def _step(self, worker: int, slab: int, t: int) -> None:
        collector, slot = self.workers[worker].collector, self._slot(slab)
        if collector.env.capturable and not collector.env.host_synchronous:
            self._launch(("step", slot, t), collector.step, slab, t)
            return
        self._launch(None, collector.simulate, blocking=collector.env.host_synchronous)
        self._launch(("record", slot, t), collector.record, slab, t)

    def _take_cut(self, worker: int, next_slab: int) -> None:
        state: Dict[str, Any] = {}  # filled in when the stream gets there
        self._launch(None, lambda: state.update(self.workers[worker].collector.state_dict()))
        self.ledger.finish(next_slab - 1, worker)
        self.workers[worker].cut = (next_slab, state)

    # ------------------------------------------------------------------------------------------------ learner stream

    def _calibrate(self, slab: int) -> None:
        self._launch(None, self.learner.calibrate, slab)
        self._version = 0
        self.ledger.drop(slab, "calibration")

    def _load(self, index: int) -> None:
        """Apply the law by what was enqueued, and once more on the device."""
        limit, on_excess = self.program.max_lag, self.settings.on_excess
        lag = self._version - min(versions[self._slot(index)] for versions in self._slab_versions)
        if lag > limit and on_excess == "throttle":
            raise LagViolation(f"slab {index} would be trained on at a lag of {lag} where 0..{limit} is allowed")
        self._empty = self._dropped[index] = lag > limit and on_excess == "drop"
        self._lag_trained = min(lag, limit)
        self._launch(None, self._load_on_device, index, self._lag_trained, self._empty)

    def _load_on_device(self, index: int, lag: int, empty: bool) -> None:
        if not empty:
            for slab in self.learner.slabs_of(index):
                slab.mask_older(self.learner.policy.version - self.program.max_lag)
        self.learner.load(index, lag, empty)

    def _finish(self, index: int) -> None:
        self._launch(None, self._finish_on_device, index)
        if not self._empty:
            self._version += 1

    def _finish_on_device(self, index: int) -> None:
        self.learner.finish(index)
        self.outbox.gather(index, self._host_numbers(index))

    def _host_numbers(self, index: int = 0) -> List[Tensor]:
        """Metrics, the version that was trained, and of each worker's slab its rows, its episodes and its faults."""
        numbers = [self.learner.measure(), self.learner.policy.version - self.learner.live.long()]
        for slab, worker in zip(self.learner.slabs_of(index), self.workers):
            numbers += [slab.summary(), slab.episode_return_TN, slab.episode_length_TN, slab.truncated_TN]
            numbers.append(worker.collector.faults[self._slot(index)])
        return numbers

    def _publish(self, snapshot: int) -> None:
        slot = self.program.slot(snapshot)
        self._launch(None, self.ring.publish, self.learner.policy, slot)
        self._snapshot_versions[slot] = self._version
        self._newest = snapshot

    def _boundary(self, index: int) -> None:
        self.outbox.send(index, self._cuda.streams[LEARNER], self._cuda.streams[COPY])
        self._pending.append(index)
        learner_first = self._learner_takes_longer()
        if index == self.program.num_updates - 1 or self._settle(index) or learner_first:
            self._cuda.drain()
            self._read_reports(index, settled=index)
            self._cuda.drain()  # copies of a checkpoint were made on no stream of ours
            if learner_first:
                self._urgent = LEARNER
                self._cuda.make_streams(self.program.streams(), urgent=lambda name: name == LEARNER)
        else:
            self._read_reports(index - BEHIND)

    def _learner_takes_longer(self) -> bool:
        """Whether the streams have just been timed alone, and the learner's is the one that decides how long an update
        takes: it then gets the higher priority."""
        alone = self._cuda.solo_seconds() if self._urgent != LEARNER else None
        return alone is not None and alone[1] > alone[0]

    def _end(self) -> None:
        self._read_reports(self.program.num_updates)

    def _read_reports(self, last: int, settled: int = -1) -> None:
        """Read what the updates up to ``last`` have to say."""
        while self._pending and self._pending[0] <= last:
            update = self._pending.popleft()
            with self.device.host_may_wait():
                self._report(update, update == settled)

    def _report(self, update: int, settled: bool) -> None:
        measured, version, *parts = self.outbox.read(update)
        facts = SlabFacts.merge(SlabFacts.of(rows.tolist()) for rows in parts[0::5])
        self._episodes = [e for pair in zip(parts[1::5], parts[2::5]) for e in episodes_of(*pair)]
        self._truncated = sum(int((cut & (length > 0)).sum()) for length, cut in zip(parts[2::5], parts[3::5]))
        if facts.lag and self.settings.on_excess == "throttle":
            rule = f"where 0..{self.program.max_lag} is allowed; they were masked"
            raise LagViolation(f"slab {update} holds {facts.lag} rows of a greater lag than {rule}")
        self._account(update, int(version), facts, self._dropped.pop(update))
        self._faults = [counts.tolist() for counts in parts[4::5]]
        self._conclude(update, self.learner.name_metrics(measured.tolist()), settled)
