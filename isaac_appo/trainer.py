"""One training run: a pipeline, its report, its checkpoints, and how it ends."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Dict, Mapping, Optional, Sequence

from isaac_appo import __version__
from isaac_appo.build import (
    build_env,
    build_program,
    build_workers,
    learner_settings,
    model_maker,
    pipeline_settings,
    restore_weights,
)
from isaac_appo.checkpoint import CheckpointError, CheckpointWriter, save_best
from isaac_appo.config import RunConfig
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.evaluation import Evaluation, evaluate
from isaac_appo.evaluator import Evaluator, Job
from isaac_appo.meter import Meter
from isaac_appo.report.guard_rails import Facts, GuardRails
from isaac_appo.report.reporter import Reporter
from isaac_appo.report.run_dir import RunDir
from isaac_appo.report.trace import Trace
from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.pipeline import Pipeline, UpdateReport
from isaac_appo.schedule.program import LEARNER, Lockstep

CENTRAL_KEYS = ("assymetric_vf_nets", "assymetric_vf_optimizer")
"""rl_games' keys, in its spelling, of an asymmetric critic."""

SCHEMA = 1
"""Version of the ``isaac_appo`` entry of a checkpoint."""


def shape_of(config: RunConfig) -> Dict[str, Any]:
    """What must be equal for a checkpoint to continue: the size of what is stored, and the schedule that stored it."""
    s = config.schedule
    limits = ("broadcast_every", "max_lead_steps", "max_policy_lag", "on_excess") if s.name == "free" else ("lag",)
    return {
        "task.name": config.task.label,
        "num_envs": config.num_envs,
        "seed": config.seed,
        "train.params.config.horizon_length": config.ppo.horizon_length,
        "schedule.name": s.name,
        "schedule.num_workers": s.num_workers,
        **{f"schedule.{name}": getattr(s, name) for name in limits},
    }


def _as_words(advantage: Optional[Mapping[str, Any]]) -> str:
    if advantage is None:
        return "an advantage that it does not name"
    caps = () if advantage["name"] == "gae" else ("rho_bar", "c_bar")
    return " ".join([f"advantage={advantage['name']}", *(f"advantage.{cap}={advantage[cap]}" for cap in caps)])


class Trainer:
    """Trains one policy in one run directory.

    Args:
        config: the validated configuration.
        run_dir: locked and prepared.
        reporter: where everything that a person should see goes.
        stop_requested: asked at each boundary; true ends the run after a checkpoint.
        envs: the environments to train in, one per worker; without them, the task's are built.
    """

    def __init__(
        self,
        config: RunConfig,
        run_dir: RunDir,
        reporter: Reporter,
        stop_requested: Callable[[], bool] = lambda: False,
        envs: Optional[Sequence[VecEnv]] = None,
    ) -> None:
        self.config, self.run_dir, self.reporter = config, run_dir, reporter
        self._stop_requested = stop_requested
        self.envs = list(envs) if envs is not None else build_workers(config, str(run_dir.path))
        first = self.envs[0]
        self.shared = envs is not None or first.exclusive
        if first.describe():
            reporter.message(first.describe())
        make_model = model_maker(config, first.num_obs, first.num_actions, first.num_states)
        learner = learner_settings(config)
        parts = (build_program(config, learner.minibatches), pipeline_settings(config), learner)
        kind = DevicePipeline if config.schedule.executor == "cuda" else Pipeline
        self.pipeline: Pipeline = kind(self.envs, make_model, *parts, self._on_boundary, settle=self._must_settle)
        self.meter = Meter(config, self.pipeline)
        self.evaluator: Optional[Evaluator] = None
        if config.eval.every or config.capture_video:
            videos, log_dir = run_dir.path / "videos", str(run_dir.path)
            self.evaluator = Evaluator(config, make_model(), videos, lambda: self.pipeline.learner.version, log_dir)
        self.trace = Trace(config.report.trace_updates, self._held) if config.report.trace else None
        self.writer = CheckpointWriter(run_dir.checkpoints, config.keep_checkpoints, warn=reporter.warn)
        self.updates = 0
        self.resumed_env_steps = 0

    @property
    def env_steps(self) -> int:
        """Environment steps that updates have consumed: rl_games' ``frame``."""
        return self.updates * self.config.num_envs * self.config.ppo.horizon_length

    def run(self, beat: Callable[[str], None] = lambda stream: None) -> None:
        """Train to the last update, or until asked to stop; ``beat(stream)`` is called as each stream gets on."""
        ppo, longest, overlaps = self.config.ppo, self.envs[0].max_episode_length, self.pipeline.program.max_lag > 0
        facts = Facts(longest, ppo.horizon_length, ppo.clip_actions, overlaps, fresh=self.updates == 0)
        self.rails = GuardRails(facts)
        self.meter.start()
        if self.updates < self.config.max_iterations:
            self.pipeline.run(beat)
        self.meter.stop()
        if self.evaluator is not None:
            self.evaluator.close(wait=not self._stop_requested())
            self._evaluations()

    def evaluate(self) -> Evaluation:
        """One full deterministic episode in fresh environments, with the weights as they are now; may be the best.

        Environments that cannot be built a second time are played in themselves; training is over then.
        """
        settings = self.config.eval
        if self.shared:
            return evaluate(self.pipeline.learner.model, self.envs[0], self.config.seed, self.config.ppo.clip_actions)
        threads = max(self.config.schedule.policy_threads, self.config.schedule.learner_threads)
        env = build_env(self.config, settings.num_envs, settings.seed, False, threads, str(self.run_dir.path))
        try:
            result = evaluate(self.pipeline.learner.model, env, settings.seed, self.config.ppo.clip_actions)
        finally:
            env.close()
        if settings.every and self.updates:
            self._save_best(self._checkpoint_path(), result.mean, "evaluation")
        return result

    def close(self) -> None:
        """Release the engines."""
        if self.evaluator is not None:
            self.evaluator.close(wait=False)
        for env in self.envs:
            env.close()

    def _on_boundary(self, report: UpdateReport) -> None:
        self.updates = report.update + 1
        measured = self.meter.measured
        row = {**self.meter.row(report), **self._evaluations()}
        self.reporter.log(self.updates, self.env_steps, row)
        for sentence in self.rails.look(row):
            self.reporter.warn(sentence)
        if self.meter.measured is not measured:
            self._weigh_overlap(report.update)
        for env in self.envs:
            env.set_train_info(self.env_steps)
        if report.settled:
            self._on_settled(report.update)
        if self.trace is not None:
            assert self.pipeline.executor is not None
            self.pipeline.executor.trace = self.trace.operation if self.trace.boundary() else None

    def _on_settled(self, update: int) -> None:
        """What reads the weights as of ``update`` or ends the run there."""
        last, stop = self.updates == self.config.max_iterations, self._must_end()
        if self._must_save(update):
            self.save()
        if self.evaluator is not None and not stop and not (last and self.config.eval.enabled):
            self._look(self.evaluator)
        if stop and not last:
            self.pipeline.stop()

    def _weigh_overlap(self, update: int) -> None:
        """Overlap has just been measured: where it does not pay, ``schedule.fallback=auto`` goes on in turns."""
        overlap, program = self.meter.measured, self.pipeline.program
        if overlap is None or overlap.pays or self.config.schedule.fallback != "auto":
            return
        if isinstance(program, Lockstep) and program.lag > 0 and self.meter.turns_from is None:
            slab = self.pipeline.go_synchronous(update)
            self.reporter.message(f"Overlap does not pay here ({overlap}): in turns from slab {slab} on")

    def _must_end(self) -> bool:
        return self._stop_requested() or self.meter.mean_reward >= self.config.ppo.score_to_win

    def _must_settle(self, update: int) -> bool:
        """Whether the weights as of ``update`` are wanted."""
        return self._must_save(update) or (self.evaluator is not None and self.evaluator.wants(update + 1))

    def _must_save(self, update: int) -> bool:
        """Whether a checkpoint is due after ``update``. On a GPU the return is that of two updates before."""
        last, every = update + 1 == self.config.max_iterations, self.config.ppo.save_frequency
        return last or bool(every and (update + 1) % every == 0) or self._must_end()

    def _held(self, stream: str) -> int:
        """The version that the learner trains, or the snapshot that a policy stream acts with."""
        if stream == LEARNER:
            return self.pipeline.learner.version
        return self.pipeline.workers[int(stream.rpartition("/")[2])].held

    def _look(self, evaluator: Evaluator) -> None:
        """Hand the published weights over if an evaluation or a film is due; the checkpoint to point at is kept."""
        if self.pipeline.program.newest_snapshot(self.updates) != self.updates:
            return
        skipped = evaluator.skipped
        due = evaluator.due(self.updates)
        if evaluator.skipped == 1 > skipped:
            self.reporter.warn(
                f"update {self.updates}: an evaluation or film was due while one was running, and is skipped; so are "
                "later ones. Raise eval.every or capture_video_freq, or lower eval.num_envs or capture_video_len"
            )
        if not any(due):
            return
        path = self._checkpoint_path()
        if due.evaluate:
            if self.writer.last_path != path:
                self.save()
            self.writer.spare.add(path)
        learner = self.pipeline.learner
        state = {name: tensor.clone() for name, tensor in learner.model.state_dict().items()}
        evaluator.start(Job(self.updates, learner.version, state, due, path))

    def _evaluations(self) -> Dict[str, float]:
        """Take what the evaluator has finished since the last boundary; the metrics of the newest evaluation."""
        row: Dict[str, float] = {}
        for job, found, film, seconds, error in self.evaluator.take_results() if self.evaluator is not None else ():
            if error:
                self.reporter.warn(f"evaluation or film of version {job.version} failed: {error}. Training goes on.")
            if film is not None:
                self.reporter.message(f"Video of version {job.version}: {film}")
                self.reporter.video(film, job.update * self.pipeline.ledger.rows)
            self.writer.spare.discard(job.checkpoint)
            if found is not None:
                lag = self.pipeline.learner.version - job.version
                self.reporter.message(f"Evaluation of version {job.version}, {lag} versions ago: {found}")
                self._save_best(job.checkpoint, found.mean, "evaluation")
                row = {"eval/return": found.mean, "eval/return_std": found.std, "eval/length": found.mean_length}
                row.update({"eval/version": job.version, "eval/seconds": seconds})
        return row

    def save(self) -> None:
        """Write a checkpoint of the boundary that the run stands at; the best one by training mean is pointed at."""
        path = self.writer.save(self.state_dict(), self.updates, {"mean_reward": self.meter.mean_reward})
        if path is not None and not self.config.eval.every:
            self._save_best(path, self.meter.mean_reward, "training")

    def _checkpoint_path(self) -> Path:
        return self.run_dir.checkpoints / f"ckpt_{self.updates:09d}.pth"

    def _save_best(self, path: Path, mean: float, by: str) -> None:
        if self.updates >= self.config.ppo.save_best_after and path.is_file():
            save_best(self.run_dir.checkpoints, path, mean, by)

    def state_dict(self) -> Dict[str, Any]:
        """rl_games' keys exactly, plus ``isaac_appo`` with all that makes the continuation exact."""
        s = self.config.schedule
        pipeline = self.pipeline.state_dict(self.updates - 1)
        learner = pipeline.pop("learner")
        return {
            "model": learner["model"],
            "epoch": self.updates,
            "frame": self.env_steps,
            "optimizer": learner["optimizer"],
            "last_mean_rewards": self.meter.mean_reward,
            "env_state": self.envs[0].state_dict().get("env_state") if not self.envs[0].resumable else None,
            **{key: learner[key] for key in CENTRAL_KEYS if key in learner},
            "isaac_appo": {
                "schema": SCHEMA,
                "version": __version__,
                "shape": shape_of(self.config),
                "advantage": asdict(self.config.advantage),
                "learning_rate": learner["learning_rate"],
                "central_learning_rate": learner.get("central_learning_rate"),
                "policy_version": learner["version"],
                "budgets": {"policy": s.policy_threads, "learner": s.learner_threads},
                "pipeline": pipeline,
                "episodes": self.meter.state_dict(),
                "elapsed_s": self.reporter.elapsed_s,
            },
        }

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue a run exactly; raises :class:`CheckpointError` if this configuration cannot."""
        own = own_entry(state)
        if own is None:
            raise CheckpointError(
                "the checkpoint holds weights but no isaac_appo entry, so the run cannot be continued from it. "
                "Start from its weights with checkpoint=PATH resume=never"
            )
        stored, ours = own["shape"], shape_of(self.config)
        changed = [f"{k}={ours[k]} (the checkpoint has {stored[k]})" for k in ours if stored.get(k) != ours[k]]
        if changed:
            raise CheckpointError(
                "a run continues exactly or not at all, and these settings differ: "
                + ", ".join(changed)
                + ". Give them the checkpoint's values, or start from its weights with checkpoint=PATH experiment=NEW"
            )
        before, now = _as_words(own.get("advantage")), _as_words(asdict(self.config.advantage))
        if before != now and self.pipeline.program.max_lag > 0:  # on policy they are all one
            self.reporter.warn(f"The checkpoint was trained with {before}; the run goes on with {now}")
        learner = {k: state[k] for k in ("model", "optimizer", *CENTRAL_KEYS) if k in state}
        learner.update({k: own[k] for k in ("learning_rate", "central_learning_rate") if k in own})
        learner["version"] = own["policy_version"]
        self.pipeline.load_state_dict({**own["pipeline"], "learner": learner})
        self.updates = int(state["epoch"])
        self.resumed_env_steps = self.env_steps
        if self.evaluator is not None:
            self.evaluator.resume_at(self.updates)
        self.meter.load_state_dict(own["episodes"])
        if not self.envs[0].resumable:
            self.reporter.warn(
                f"{self.envs[0]} cannot save its physics: learner, statistics and schedule continue exactly, and the "
                "environments start new episodes, so this is not the run that would have gone on"
            )

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Start from the weights and statistics of any rl_games or isaac_appo checkpoint, and nothing else of it."""
        restore_weights(self.pipeline.learner.model, state, self.config.task.name)
        self.envs[0].set_env_state(state.get("env_state"))
        for worker in self.pipeline.workers:
            worker.policy.bytes.copy_(self.pipeline.learner.policy.bytes)


def own_entry(state: Mapping[str, Any]) -> Optional[Mapping[str, Any]]:
    """The ``isaac_appo`` entry of a checkpoint, checked for its schema; ``None`` if it is rl_games' own."""
    own = state.get("isaac_appo")
    if own is not None and own.get("schema") != SCHEMA:
        raise CheckpointError(
            f"the checkpoint has schema {own.get('schema')} where version {__version__} reads schema {SCHEMA}. "
            "Use the version that wrote it"
        )
    return own
