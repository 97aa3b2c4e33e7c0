"""The pipeline: collector, learner, slabs, snapshots and ledger behind the operations of a program.

It is the only place where the two streams meet. What crosses between them: slabs (by ready and free), versions (by
snapshot and adopted), and the policy stream's cut, under a lock, for checkpoints.
"""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

import torch

from isaac_appo.env.vec_env import VecEnv
from isaac_appo.learn.learner import Learner, LearnerSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.snapshot import PolicyBuffer, SnapshotRing
from isaac_appo.rollout.collector import Collector
from isaac_appo.rollout.slab import Slab
from isaac_appo.schedule.executors.base import Executor, Handler
from isaac_appo.schedule.executors.inline import InlineExecutor
from isaac_appo.schedule.executors.threads import ThreadExecutor
from isaac_appo.schedule.ledger import LagReport, Ledger
from isaac_appo.schedule.program import CALIBRATION, Program

POLICY, LEARNER = "policy", "learner"
MAX_SKIPPED_UPDATES = 3
"""Updates in a row without one usable SGD step before training is declared lost."""


class TrainingDiverged(RuntimeError):  # noqa: N818 (it says what is the case)
    """Gradients, or the physics of too many environments, stayed non-finite."""


class PipelineSettings(NamedTuple):
    """What the pipeline itself needs; the learner has its own settings."""

    horizon: int
    lag: int
    num_updates: int
    executor: str
    policy_threads: int
    learner_threads: int
    seed: int
    clip_actions: bool
    max_nan_fraction: float


class UpdateReport(NamedTuple):
    """What an update says about itself at its boundary."""

    update: int
    lag: LagReport
    episodes: List[Tuple[float, int]]
    """Return and length of each episode that ended in the slab."""
    nan_rows: int
    metrics: Dict[str, float]


class Pipeline:
    """Builds both streams around ``env`` and runs them.

    Args:
        env: the environments that are trained in.
        make_model: builds an actor-critic; called once per stream, the copies are made equal.
        on_boundary: called by the learner stream after each update, at a point where a checkpoint is consistent.
    """

    def __init__(
        self,
        env: VecEnv,
        make_model: Callable[[], ActorCritic],
        settings: PipelineSettings,
        learner: LearnerSettings,
        on_boundary: Callable[[UpdateReport], None] = lambda report: None,
    ) -> None:
        self.settings = s = settings
        self.program = Program(s.horizon, learner.epochs, learner.minibatches, s.lag, s.num_updates)
        self.slabs = [
            Slab(s.horizon, env.num_envs, env.num_obs, env.num_actions, env.device)
            for _ in range(self.program.num_slabs)
        ]
        trained, acting = make_model(), make_model()
        acting.load_state_dict(trained.state_dict())
        policy = PolicyBuffer(trained)
        self.ring = SnapshotRing(policy, self.program.num_snapshots)
        self.learner = Learner(trained, policy, self.slabs, learner)
        self.collector = Collector(env, acting, PolicyBuffer(acting), self.slabs, s.seed, s.clip_actions)
        self.ledger = Ledger(s.horizon * env.num_envs, s.lag)
        self.env = env
        self._on_boundary = on_boundary
        self._lock = threading.Lock()
        self._cut: Tuple[int, Dict[str, Any]] = (CALIBRATION, self.collector.state_dict())
        self._lag = LagReport(0.0, 0, 0)
        self._nan_rows = 0
        self._episodes: List[Tuple[float, int]] = []
        self._skipped_updates = 0
        self.executor: Optional[Executor] = None

    def run(self, beat: Callable[[str], None] = lambda stream: None) -> None:
        """Run from where the pipeline stands to the last update, or until :meth:`stop`; then check the ledger.

        ``beat(stream)`` is called as each stream gets on.
        """
        self.executor = self._make_executor()
        self.executor.beat = beat
        if self.program.first_update != CALIBRATION:
            done, ready = self.program.first_update - 1, self.program.first_slab - 1
            self.executor.mark(free=done, snapshot=done + 1, ready=ready, adopted=ready)
        streams = {POLICY: self.program.policy_stream(), LEARNER: self.program.learner_stream()}
        self.executor.run(streams)
        self.ledger.drop_all("shutdown")
        self.ledger.check()

    def stop(self) -> None:
        """End both streams; called from ``on_boundary``."""
        assert self.executor is not None
        self.executor.stop()

    def _make_executor(self) -> Executor:
        handlers: Dict[str, Handler] = {
            "begin": self.ledger.begin,
            "adopt": lambda slab, version: self.collector.adopt(self.ring, version),
            "act": self.collector.step,
            "bootstrap": self.collector.bootstrap,
            "cut": self._take_cut,
            "calibrate": self._calibrate,
            "load": self._load,
            "proximal": lambda update: self.learner.proximal(),
            "targets": self.learner.targets,
            "minibatch": self.learner.minibatch,
            "finish": self._finish,
            "publish": lambda version: self.ring.publish(self.learner.policy, version),
            "boundary": self._boundary,
        }
        s = self.settings
        budgets = {POLICY: s.policy_threads, LEARNER: s.learner_threads}
        if s.executor == "inline":
            torch.set_num_threads(max(budgets.values()))
            return InlineExecutor(handlers)
        return ThreadExecutor(handlers, setup=lambda stream: torch.set_num_threads(budgets[stream]))

    def _take_cut(self, next_slab: int) -> None:
        with self._lock:
            self.ledger.finish(next_slab - 1)
            self._cut = (next_slab, self.collector.state_dict())

    def _calibrate(self, slab: int) -> None:
        self.learner.calibrate(slab)
        self.ledger.drop(slab, "calibration")

    def _load(self, update: int) -> None:
        facts = self.learner.slab(update).facts()
        self._lag = self.ledger.train(update, update, facts)
        self._nan_rows = facts.nan
        self.learner.load(update, stale=self._lag.max > 0)

    def _finish(self, update: int) -> None:
        self.learner.finish(update)
        self._episodes = self.learner.slab(update).finished_episodes()

    def _boundary(self, update: int) -> None:
        self.env.check()
        metrics = self.learner.metrics()
        self._guard(metrics)
        self._on_boundary(UpdateReport(update, self._lag, self._episodes, self._nan_rows, metrics))

    def _guard(self, metrics: Mapping[str, float]) -> None:
        """Stop a run that no longer learns: non-finite gradients throughout, or broken physics in many envs."""
        steps = self.program.epochs * self.program.minibatches
        self._skipped_updates = self._skipped_updates + 1 if metrics["loss/skipped_steps"] >= steps else 0
        if self._skipped_updates >= MAX_SKIPPED_UPDATES:
            raise TrainingDiverged(
                f"all {steps} SGD steps of {MAX_SKIPPED_UPDATES} updates in a row were skipped, because the gradient "
                "was not finite or no row was live. Resume from an earlier checkpoint with a smaller "
                "train.params.config.learning_rate, or clip with train.params.config.truncate_grads=True"
            )
        limit = self.settings.max_nan_fraction * self.ledger.rows_per_slab
        if self._nan_rows > limit:
            raise TrainingDiverged(
                f"the physics of {self._nan_rows} of {self.ledger.rows_per_slab} rows became non-finite in one update, "
                f"where env.max_nan_fraction={self.settings.max_nan_fraction} allows {limit:.0f}. "
                "Raise task.sim.substeps, check the model's masses and gains, or raise env.max_nan_fraction"
            )

    def state_dict(self, update: int) -> Dict[str, Any]:
        """Everything that decides the run after ``update``; call from ``on_boundary`` only.

        The slab in flight is left out: it is collected again from the cut, with the same version and the same noise.
        """
        with self._lock:
            next_slab, cut = self._cut
            ready = {i: self.learner.slab(i).state_dict() for i in range(update + 1, next_slab)}
            ledger = self.ledger.state_dict()
        state = {"update": update, "next_slab": next_slab, "cut": cut, "ready": ready, "ledger": ledger}
        return {**state, "ring": self.ring.bytes.clone(), "learner": self.learner.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Stand where :meth:`state_dict` stood; call before :meth:`run`."""
        first, next_slab = int(state["update"]) + 1, int(state["next_slab"])
        self.program = self.program._replace(first_update=first, first_slab=next_slab)
        self.learner.load_state_dict(state["learner"])
        self.learner.policy.version.fill_(first)
        self.ring.bytes.copy_(state["ring"])
        self.ledger.load_state_dict(state["ledger"])
        for index, slab in state["ready"].items():
            self.learner.slab(int(index)).load_state_dict(slab)
        self.collector.load_state_dict(state["cut"])
        self._cut = (next_slab, self.collector.state_dict())
