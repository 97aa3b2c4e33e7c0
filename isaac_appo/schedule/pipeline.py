"""The pipeline: workers, learner, slabs, snapshots and ledger behind the operations of a program.

It is the only place where the streams meet. What crosses between them: slabs (by ready and free), versions (by snapshot
and adopted), and each worker's cut, under a lock, for checkpoints.
"""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

import torch

from isaac_appo.env.vec_env import VecEnv
from isaac_appo.errors import UserError
from isaac_appo.learn.learner import Learner, LearnerSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.snapshot import PolicyBuffer, SnapshotRing
from isaac_appo.rollout.collector import Collector, final_source
from isaac_appo.rollout.facts import SlabFacts
from isaac_appo.rollout.slab import Slab
from isaac_appo.schedule.executors.base import Executor, Handler
from isaac_appo.schedule.executors.inline import InlineExecutor
from isaac_appo.schedule.executors.threads import ThreadExecutor
from isaac_appo.schedule.ledger import LagReport, Ledger
from isaac_appo.schedule.program import CALIBRATION, LEARNER, Lockstep, Program

MAX_SKIPPED_UPDATES = 3
"""Updates in a row without one usable SGD step before training is declared lost."""
REPORTED_BEHIND = 2
"""The most updates that a report comes behind what has been begun, on any executor."""
MAX_EMPTY_SLABS = 20
"""Slabs in a row that were dropped or wholly masked before the schedule is declared to starve."""


class TrainingDiverged(UserError):  # noqa: N818 (it says what is the case)
    """Gradients, or the physics of too many environments, stayed non-finite, or nothing is left to train on."""

    exit_code = 1


class PipelineSettings(NamedTuple):
    """What the pipeline itself needs; program and learner have their own settings."""

    executor: str
    policy_threads: int
    learner_threads: int
    seed: int
    clip_actions: bool
    max_nan_fraction: float
    on_excess: str = "throttle"
    graphs: bool = True


class UpdateReport(NamedTuple):
    """What the learner says about a slab that it has consumed."""

    update: int
    lag: LagReport
    episodes: List[Tuple[float, int]]
    """Return and length of each episode that ended in the slab."""
    nan_rows: int
    metrics: Dict[str, float]
    truncated: int = 0
    """How many of the episodes were cut by the time limit."""
    settled: bool = True
    """Whether the pipeline stands still at this update, so that its state may be saved."""


class Worker:
    """One policy stream: a shard of the environments, the collector that acts in it, and its ring of slabs.

    Attributes:
        cut: where the worker would begin again: the slab, and the collector's state at its start.
        picked: the snapshot that is being copied, or ``None``.
        held: the snapshot that it acts with.
    """

    def __init__(self, env: VecEnv, model: ActorCritic, program: Program, seed: int, clip_actions: bool) -> None:
        self.env = env
        final = final_source(env, model)
        sizes = (env.num_states if model.central_value is not None else 0, 0 if final is None else final.shape[-1])
        self.slabs = [
            Slab(program.horizon, env.num_envs, env.num_obs, env.num_actions, env.device, *sizes, env.autoreset)
            for _ in range(program.num_slabs)
        ]
        self.policy = PolicyBuffer(model)
        self.collector = Collector(env, model, self.policy, self.slabs, seed, clip_actions)
        self.cut: Tuple[int, Dict[str, Any]] = (CALIBRATION, self.collector.state_dict())
        self.picked: Optional[int] = None
        self.held = CALIBRATION

    @property
    def rows(self) -> int:
        """Rows of a slab."""
        return self.slabs[0].horizon * self.env.num_envs


def worker_key(seed: int, worker: int) -> int:
    """The 64-bit key of a worker's random numbers: the run's seed (below 2^32) in the low half."""
    return seed + (worker << 32)


class Pipeline:
    """Builds all streams around ``envs`` and runs them.

    Args:
        envs: the environments that are trained in, one shard per worker of ``program``.
        make_model: builds an actor-critic; called once per stream, the copies are made equal.
        program: the schedule.
        on_boundary: called by the learner stream after each slab, at a point where a checkpoint is consistent.
        settle: asked at each boundary whether the run must stand still there, to save or to end; what runs on the host
            always does.
    """

    def __init__(
        self,
        envs: Sequence[VecEnv],
        make_model: Callable[[], ActorCritic],
        program: Program,
        settings: PipelineSettings,
        learner: LearnerSettings,
        on_boundary: Callable[[UpdateReport], None] = lambda report: None,
        settle: Callable[[int], bool] = lambda update: False,
    ) -> None:
        self.program, self.settings = program, settings
        trained = make_model()
        self.workers: List[Worker] = []
        for index, env in enumerate(envs):
            acting = make_model()
            acting.load_state_dict(trained.state_dict())
            key = worker_key(settings.seed, index)
            self.workers.append(Worker(env, acting, program, key, settings.clip_actions))
        self.learner = Learner(trained, PolicyBuffer(trained), [w.slabs for w in self.workers], learner)
        self.ring = SnapshotRing(self.learner.policy, program.num_snapshots)
        self.ledger = Ledger([w.rows for w in self.workers], program.max_lag)
        self.executor: Optional[Executor] = None
        self._newest = CALIBRATION
        self._stopped = False
        self._on_boundary, self._settle = on_boundary, settle
        self._lock = threading.Lock()
        self._facts = SlabFacts(0, 0, 0, 0, {})
        self._lag = LagReport.of(0, self._facts)
        self._episodes: List[Tuple[float, int]] = []
        self._faults: List[List[int]] = []
        self._truncated = 0
        self._skipped_updates = self._empty_slabs = 0

    def run(self, beat: Callable[[str], None] = lambda stream: None) -> None:
        """Run from where the pipeline stands to the last update, or until :meth:`stop`; then check the ledger.

        ``beat(stream)`` is called as each stream gets on.
        """
        self.executor = self._make_executor()
        self.executor.beat = beat
        self.executor.mark(**self.program.marks())
        self.executor.run(self.program.streams())
        self._end()
        if self._stopped:
            self.ledger.drop_all("shutdown")
        else:  # whatever is left over now was lost by the schedule
            self.ledger.check_consumed(self.program.num_updates + 1)
        self.ledger.check()

    def _end(self) -> None:
        """Nothing is left to be read when the streams have ended."""

    def stop(self) -> None:
        """End all streams; called from ``on_boundary``."""
        assert self.executor is not None
        self._stopped = True
        self.executor.stop()

    def handlers(self) -> Dict[str, Handler]:
        """The operations of the program by name."""
        return {
            "begin": lambda worker, slab: self.ledger.begin(slab, worker),
            "adopt": self._adopt,
            "pick": self._pick,
            "copy": self._copy,
            "act": lambda worker, slab, t: self.workers[worker].collector.act(slab, t),
            "step": lambda worker, slab, t: self.workers[worker].collector.step(slab, t),
            "bootstrap": lambda worker, slab: self.workers[worker].collector.bootstrap(slab),
            "cut": self._take_cut,
            "calibrate": self._calibrate,
            "load": self._load,
            "proximal": self.learner.proximal,
            "targets": self.learner.targets,
            "minibatch": self.learner.minibatch,
            "finish": self._finish,
            "publish": self._publish,
            "boundary": self._boundary,
        }

    def _make_executor(self) -> Executor:
        s = self.settings
        gates = {"unread": self._is_unread}
        if s.executor == "inline":
            torch.set_num_threads(max(s.policy_threads, s.learner_threads))
            return InlineExecutor(self.handlers(), gates)

        def set_budget(stream: str) -> None:
            torch.set_num_threads(s.learner_threads if stream == LEARNER else s.policy_threads)

        return ThreadExecutor(self.handlers(), gates, setup=set_budget)

    # ------------------------------------------------------------------------------------------------ policy streams

    def _adopt(self, worker: int, slab: int, snapshot: int) -> None:
        self.ring.adopt(self.workers[worker].policy, self.program.slot(snapshot))
        self.workers[worker].held = snapshot

    def _pick(self, worker: int) -> None:
        """Choose the newest snapshot, if newer than the one held; from now until it is copied it is being read."""
        with self._lock:
            w = self.workers[worker]
            w.picked = self._newest if self._newest > w.held else None

    def _copy(self, worker: int) -> None:
        w = self.workers[worker]
        if w.picked is None:
            return
        self._adopt(worker, CALIBRATION, w.picked)
        with self._lock:
            w.picked = None

    def _is_unread(self, snapshot: int) -> bool:
        """Whether nobody is reading the slot that ``snapshot`` goes to. New readers go to the newest, another slot."""
        slot = self.program.slot
        with self._lock:
            return all(w.picked is None or slot(w.picked) != slot(snapshot) for w in self.workers)

    def _take_cut(self, worker: int, next_slab: int) -> None:
        with self._lock:
            self.ledger.finish(next_slab - 1, worker)
            self.workers[worker].cut = (next_slab, self.workers[worker].collector.state_dict())

    # ------------------------------------------------------------------------------------------------ learner stream

    def _calibrate(self, slab: int) -> None:
        self.learner.calibrate(slab)
        self.ledger.drop(slab, "calibration")

    def _load(self, index: int) -> None:
        """Apply the law: what is older than the limit is masked or dropped here, or an error where it cannot be."""
        version, slabs = self.learner.version, self.learner.slabs_of(index)
        if self.settings.on_excess == "mask":
            for slab in slabs:
                slab.mask_older(version - self.program.max_lag)
        facts = SlabFacts.merge(slab.facts() for slab in slabs)
        late = LagReport.of(version, facts).max > self.program.max_lag
        empty = self._account(index, version, facts, self.settings.on_excess == "drop" and late)
        self.learner.load(index, self._lag.max, empty)

    def _account(self, index: int, version: int, facts: SlabFacts, dropped: bool) -> bool:
        """Enter in the ledger what becomes of slab ``index``; returns whether no row of it is trained on."""
        self._facts = facts
        if dropped:
            self.ledger.drop(index, "stale")
            self._lag = LagReport.of(version, SlabFacts(0, 0, 0, 0, {}))
        else:
            self._lag = self.ledger.train(index, version, facts)
        empty = dropped or facts.live == 0
        self._empty_slabs = self._empty_slabs + 1 if empty else 0
        return empty

    def _finish(self, index: int) -> None:
        self.learner.finish(index)
        self._truncated = sum(slab.truncated_episodes() for slab in self.learner.slabs_of(index))
        self._episodes = [e for slab in self.learner.slabs_of(index) for e in slab.finished_episodes()]
        self._faults = [w.collector.faults[index % len(w.slabs)].tolist() for w in self.workers]

    def _publish(self, snapshot: int) -> None:
        self.ring.publish(self.learner.policy, self.program.slot(snapshot))
        self._newest = snapshot

    def _boundary(self, index: int) -> None:
        self._conclude(index, self.learner.metrics(), True)

    def _conclude(self, index: int, metrics: Dict[str, float], settled: bool) -> None:
        """Report an update. One whose physics dropped something is reported, with the count, and never saved."""
        self.ledger.check_consumed(index + 2)  # this slab, those before it, and the calibration slab
        fault = self._refused()
        if fault is None:
            self._guard(metrics)  # else what broke the rows is known, and is no matter of masses or substeps
        for name, *counts in zip(self.workers[0].env.fault_names, *self._faults):
            metrics[name] = sum(counts)
        settled = settled and fault is None
        self._on_boundary(
            UpdateReport(index, self._lag, self._episodes, self._facts.nan, metrics, self._truncated, settled)
        )
        if fault is not None:
            raise fault

    def _refused(self) -> Optional[UserError]:
        try:
            for worker, counts in zip(self.workers, self._faults):
                worker.env.check(counts)
        except UserError as error:
            return error
        return None

    def _guard(self, metrics: Mapping[str, float]) -> None:
        """Stop a run that no longer learns: non-finite gradients throughout, broken physics, or no row left."""
        steps = self.program.epochs * self.program.minibatches
        self._skipped_updates = self._skipped_updates + 1 if metrics["loss/skipped_steps"] >= steps else 0
        if self._skipped_updates >= MAX_SKIPPED_UPDATES:
            raise TrainingDiverged(
                f"all {steps} SGD steps of {MAX_SKIPPED_UPDATES} updates in a row were skipped, because the gradient "
                "was not finite. Resume from an earlier checkpoint with a smaller "
                "train.params.config.learning_rate, or clip with train.params.config.truncate_grads=True"
            )
        limit = self.settings.max_nan_fraction * self.ledger.rows
        if self._facts.nan > limit:
            raise TrainingDiverged(
                f"the physics of {self._facts.nan} of {self.ledger.rows} rows became non-finite in one update, "
                f"where env.max_nan_fraction={self.settings.max_nan_fraction} allows {limit:.0f}. "
                "Raise task.sim.substeps, check the model's masses and gains, or raise env.max_nan_fraction"
            )
        if self._empty_slabs >= MAX_EMPTY_SLABS:
            raise TrainingDiverged(
                f"{MAX_EMPTY_SLABS} slabs in a row had no row to train on: {self.ledger.totals()}. "
                "Raise schedule.max_policy_lag, lower schedule.max_lead_steps, or use schedule.on_excess=throttle"
            )

    def go_synchronous(self, update: int) -> int:
        """Take turns from the first slab on that no stream can have begun at the report of ``update``; which one."""
        assert isinstance(self.program, Lockstep)
        self.program.switch.at = update + REPORTED_BEHIND + self.program.lag + 2
        return self.program.switch.at

    # --------------------------------------------------------------------------------------------------- checkpoints

    def state_dict(self, update: int) -> Dict[str, Any]:
        """Everything that decides the run after ``update``; call from ``on_boundary`` only.

        Errors: what ``VecEnv.check`` raises for a slab that waits for the learner. Once saved, its faults could not be
        mended by the setting that the error names, and every resume would end with it.

        The slabs in flight are left out: they are collected again from the cuts, with the same noise.
        """
        with self._lock:
            cuts = [worker.cut for worker in self.workers]
            ledger = self.ledger.state_dict()
        for worker, (next_slab, _) in zip(self.workers, cuts):
            for i in range(update + 1, next_slab):
                worker.env.check(worker.collector.faults[i % len(worker.slabs)].tolist())
        ready = [
            {i: worker.slabs[i % len(worker.slabs)].state_dict() for i in range(update + 1, next_slab)}
            for worker, (next_slab, _) in zip(self.workers, cuts)
        ]
        state = {"update": update, "next_slabs": [i for i, _ in cuts], "cuts": [cut for _, cut in cuts], "ready": ready}
        if isinstance(self.program, Lockstep):
            state["synchronous_from"] = self.program.switch.at
        return {**state, "ledger": ledger, "ring": self.ring.bytes.clone(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where :meth:`state_dict` stood; call before :meth:`run`."""
        first, next_slabs = int(state["update"]) + 1, tuple(int(i) for i in state["next_slabs"])
        self.program = replace(self.program, first_update=first, first_slabs=next_slabs)
        if isinstance(self.program, Lockstep):
            self.program.switch.at = state.get("synchronous_from", self.program.switch.at)
        self.learner.load_state_dict(state["learner"])
        self.ring.bytes.copy_(state["ring"])
        self._newest = self.program.newest_snapshot(first)
        self.ledger.load_state_dict(state["ledger"])
        for worker, next_slab, cut, ready in zip(self.workers, next_slabs, state["cuts"], state["ready"]):
            for index, slab in ready.items():
                worker.slabs[int(index) % len(worker.slabs)].load_state_dict(slab)
            worker.collector.load_state_dict(cut)
            worker.cut = (next_slab, worker.collector.state_dict())
