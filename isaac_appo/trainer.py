"""One training run: a pipeline, its report, its checkpoints, and how it ends."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

from isaac_appo import __version__
from isaac_appo.build import (
    build_env,
    build_program,
    build_workers,
    learner_settings,
    model_maker,
    pipeline_settings,
)
from isaac_appo.checkpoint import CheckpointError, CheckpointWriter, save_best
from isaac_appo.config import RunConfig
from isaac_appo.evaluation import Evaluation, evaluate
from isaac_appo.meter import Meter
from isaac_appo.report.reporter import Reporter
from isaac_appo.report.run_dir import RunDir
from isaac_appo.report.trace import Trace
from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.pipeline import Pipeline, UpdateReport
from isaac_appo.schedule.program import LEARNER, Lockstep

SCHEMA = 1
"""Version of the ``isaac_appo`` entry of a checkpoint."""


def shape_of(config: RunConfig) -> Dict[str, Any]:
    """What must be equal for a checkpoint to continue: the size of what is stored, and the schedule that stored it."""
    s = config.schedule
    limits = ("broadcast_every", "max_lead_steps", "max_policy_lag", "on_excess") if s.name == "free" else ("lag",)
    return {
        "task.name": config.task.name,
        "num_envs": config.num_envs,
        "seed": config.seed,
        "train.params.config.horizon_length": config.ppo.horizon_length,
        "schedule.name": s.name,
        "schedule.num_workers": s.num_workers,
        **{f"schedule.{name}": getattr(s, name) for name in limits},
    }


class Trainer:
    """Trains one policy in one run directory.

    Args:
        config: the validated configuration.
        run_dir: locked and prepared.
        reporter: where everything that a person should see goes.
        stop_requested: asked at each boundary; true ends the run after a checkpoint.
    """

    def __init__(
        self, config: RunConfig, run_dir: RunDir, reporter: Reporter, stop_requested: Callable[[], bool] = lambda: False
    ) -> None:
        self.config, self.run_dir, self.reporter = config, run_dir, reporter
        self._stop_requested = stop_requested
        self.envs = build_workers(config, str(run_dir.path))
        make_model = model_maker(config, self.envs[0].num_obs, self.envs[0].num_actions)
        learner = learner_settings(config)
        program = build_program(config, learner.minibatches)
        settings = pipeline_settings(config)
        kind = DevicePipeline if config.schedule.executor == "cuda" else Pipeline
        self.pipeline: Pipeline = kind(
            self.envs, make_model, program, settings, learner, self._on_boundary, settle=self._must_settle
        )
        self.meter = Meter(config, self.pipeline)
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
        self.meter.start()
        if self.updates < self.config.max_iterations:
            self.pipeline.run(beat)
        self.meter.stop()

    def evaluate(self) -> Evaluation:
        """One full deterministic episode in fresh environments, with the weights as they are now."""
        settings = self.config.eval
        threads = max(self.config.schedule.policy_threads, self.config.schedule.learner_threads)
        env = build_env(self.config, settings.num_envs, settings.seed, False, threads, str(self.run_dir.path))
        try:
            return evaluate(self.pipeline.learner.model, env, settings.seed, self.config.ppo.clip_actions)
        finally:
            env.close()

    def close(self) -> None:
        """Release the engines."""
        for env in self.envs:
            env.close()

    def _on_boundary(self, report: UpdateReport) -> None:
        self.updates = report.update + 1
        measured = self.meter.measured
        self.reporter.log(self.updates, self.env_steps, self.meter.row(report))
        if self.meter.measured is not measured:
            self._weigh_overlap(report.update)
        if report.settled and self._must_settle(report.update):
            self.save()
            if self._must_end() and self.updates < self.config.max_iterations:
                self.pipeline.stop()

        if self.trace is not None:
            assert self.pipeline.executor is not None
            self.pipeline.executor.trace = self.trace.operation if self.trace.boundary() else None

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
        """Whether a checkpoint is due after ``update``. On a GPU the return is that of two updates before."""
        last, every = update + 1 == self.config.max_iterations, self.config.ppo.save_frequency
        return last or bool(every and (update + 1) % every == 0) or self._must_end()

    def _held(self, stream: str) -> int:
        """The version that the learner trains, or the snapshot that a policy stream acts with."""
        if stream == LEARNER:
            return self.pipeline.learner.version
        return self.pipeline.workers[int(stream.rpartition("/")[2])].held

    # -------------------------------------------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write a checkpoint of the boundary that the run stands at; the best one by training mean is pointed at."""
        path = self.writer.save(self.state_dict(), self.updates, {"mean_reward": self.meter.mean_reward})
        if path is not None and self.updates >= self.config.ppo.save_best_after:
            save_best(self.run_dir.checkpoints, path, self.meter.mean_reward)

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
            "env_state": None,
            "isaac_appo": {
                "schema": SCHEMA,
                "version": __version__,
                "shape": shape_of(self.config),
                "learning_rate": learner["learning_rate"],
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
        learner = {k: state[k] for k in ("model", "optimizer")}
        learner.update({"learning_rate": own["learning_rate"], "version": own["policy_version"]})
        self.pipeline.load_state_dict({**own["pipeline"], "learner": learner})
        self.updates = int(state["epoch"])
        self.resumed_env_steps = self.env_steps
        self.meter.load_state_dict(own["episodes"])

    def load_weights(self, state: Mapping[str, Any]) -> None:
        """Start from the weights and statistics of any rl_games or isaac_appo checkpoint, and nothing else of it."""
        model = {name.replace("_orig_mod.", ""): tensor for name, tensor in state["model"].items()}
        try:
            self.pipeline.learner.model.load_state_dict(model, strict=True)
        except RuntimeError as error:
            raise CheckpointError(
                f"the checkpoint's network does not fit train.params.network and task={self.config.task.name}: {error}"
            ) from error
        self.pipeline.learner.model.publish_statistics()
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
