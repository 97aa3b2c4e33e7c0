"""One training run: a pipeline, its report, its checkpoints, and how it ends."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Callable, Deque, Dict, List, Mapping, Optional, Tuple

from isaac_appo import __version__
from isaac_appo.build import build_env, learner_settings, model_maker, pipeline_settings
from isaac_appo.checkpoint import CheckpointError, CheckpointWriter, save_best
from isaac_appo.config import RunConfig
from isaac_appo.evaluation import Evaluation, evaluate
from isaac_appo.report.reporter import Reporter
from isaac_appo.report.run_dir import RunDir
from isaac_appo.schedule.pipeline import LEARNER, POLICY, Pipeline, UpdateReport

HIDDEN_WORTH_ITS_LAG = 0.1
"""Below this hidden fraction a run is told to use ``schedule=sync`` (what ``schedule.fallback=warn`` means)."""
SCHEMA = 1
"""Version of the ``isaac_appo`` entry of a checkpoint."""


def shape_of(config: RunConfig) -> Dict[str, Any]:
    """What must be equal for a checkpoint to continue exactly."""
    return {
        "task.name": config.task.name,
        "num_envs": config.num_envs,
        "seed": config.seed,
        "train.params.config.horizon_length": config.ppo.horizon_length,
        "schedule.lag": config.schedule.lag,
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
        threads = config.schedule.policy_threads
        self.env = build_env(
            config, config.num_envs, config.seed, config.env.stagger_resets, threads, str(run_dir.path)
        )
        self._make_model = model_maker(config, self.env.num_obs, self.env.num_actions)
        self.pipeline = Pipeline(
            self.env, self._make_model, pipeline_settings(config), learner_settings(config), self._on_boundary
        )
        self.writer = CheckpointWriter(run_dir.checkpoints, config.keep_checkpoints, warn=reporter.warn)
        self.updates = 0
        self.resumed_env_steps = 0
        self.seconds = 0.0
        self._episodes: Deque[Tuple[float, int]] = deque(maxlen=config.ppo.games_to_track)
        self._lap = time.perf_counter()
        self._clock: Dict[str, float] = {}

    @property
    def env_steps(self) -> int:
        """Environment steps that updates have consumed: rl_games' ``frame``."""
        return self.updates * self.config.num_envs * self.config.ppo.horizon_length

    @property
    def mean_reward(self) -> float:
        """Mean return of the last ``games_to_track`` finished episodes; NaN before the first."""
        return _mean([episode[0] for episode in self._episodes])

    @property
    def mean_length(self) -> float:
        """Mean length of those episodes."""
        return _mean([episode[1] for episode in self._episodes])

    def run(self, beat: Callable[[str], None] = lambda stream: None) -> None:
        """Train to the last update, or until asked to stop; ``beat(stream)`` is called as each stream gets on."""
        started = self._lap = time.perf_counter()
        if self.updates < self.config.max_iterations:
            self.pipeline.run(beat)
        self.seconds = time.perf_counter() - started

    def evaluate(self) -> Evaluation:
        """One full deterministic episode in fresh environments, with the weights as they are now."""
        settings = self.config.eval
        threads = max(self.config.schedule.policy_threads, self.config.schedule.learner_threads)
        env = build_env(self.config, settings.num_envs, settings.seed, False, threads, str(self.run_dir.path))
        try:
            return evaluate(self.pipeline.learner.model, env, settings.seed, self.config.ppo.clip_actions)
        finally:
            env.close()

    def overlap(self) -> str:
        """How long each stream worked in this process, how much of that overlapped, and what to do if it did not."""
        executor = self.pipeline.executor
        if executor is None:
            return "nothing ran"
        policy, learner = executor.busy_s[POLICY], executor.busy_s[LEARNER]
        hidden = (policy + learner - self.seconds) / max(min(policy, learner), 1e-9)
        text = f"policy stream busy {policy:.1f} s, learner stream busy {learner:.1f} s, of {self.seconds:.1f} s"
        if self.config.schedule.lag == 0:
            return text + " (they take turns at lag 0)"
        text += f"; {100 * min(1.0, max(0.0, hidden)):.0f} % of the shorter one was hidden behind the longer"
        if hidden < HIDDEN_WORTH_ITS_LAG:
            text += ". Overlap does not pay here: schedule=sync is as fast and trains on fresher data"
        return text

    def close(self) -> None:
        """Release the engine."""
        self.env.close()

    # -------------------------------------------------------------------------------------------------- each update

    def _on_boundary(self, report: UpdateReport) -> None:
        self.updates = report.update + 1
        self._episodes.extend(report.episodes)
        self.reporter.log(self.updates, self.env_steps, self._metrics(report))
        last = self.updates == self.config.max_iterations
        stop = self._stop_requested() or self.mean_reward >= self.config.ppo.score_to_win
        every = self.config.ppo.save_frequency
        if last or stop or (every and self.updates % every == 0):
            self.save()
        if stop and not last:
            self.pipeline.stop()

    def _metrics(self, report: UpdateReport) -> Dict[str, float]:
        c = self.config
        metrics = dict(report.metrics)
        if self._episodes:
            metrics["rewards/step"] = self.mean_reward
            metrics["episode_lengths/step"] = self.mean_length
            shaper = c.ppo.reward_shaper
            metrics["shaped_rewards/step"] = (
                self.mean_reward + shaper.shift_value * self.mean_length
            ) * shaper.scale_value
        sgd_steps = c.ppo.mini_epochs * self.pipeline.program.minibatches
        metrics.update(
            {
                "lag/mean": report.lag.mean,
                "lag/max": report.lag.max,
                "lag/sgd_steps": report.lag.mean * sgd_steps,
                "info/epochs": self.updates,
                "info/e_clip": c.ppo.e_clip,
                "info/lr_mul": 1.0,
                "nan_envs": report.nan_rows,
                **{"ledger/" + name: rows for name, rows in self.pipeline.ledger.totals().items()},
                **self._performance(),
            }
        )
        return metrics

    def _performance(self) -> Dict[str, float]:
        executor = self.pipeline.executor
        assert executor is not None
        now = time.perf_counter()
        wall, self._lap = now - self._lap, now
        clock = {**executor.busy_s, "act": executor.op_s["act"], "env": self.pipeline.collector.env_s}
        spent = {name: value - self._clock.get(name, 0.0) for name, value in clock.items()}
        self._clock = clock
        rows = self.pipeline.ledger.rows_per_slab
        return {
            "performance/step_time": spent["env"],
            "performance/step_inference_time": spent["act"],
            "performance/rl_update_time": spent[LEARNER],
            "performance/step_fps": rows / max(spent["env"], 1e-9),
            "performance/step_inference_fps": rows / max(spent["act"], 1e-9),
            "performance/step_inference_rl_update_fps": rows / max(wall, 1e-9),
            "idle/policy": _idle(spent[POLICY], wall),
            "idle/learner": _idle(spent[LEARNER], wall),
        }

    # -------------------------------------------------------------------------------------------------- checkpoints

    def save(self) -> None:
        """Write a checkpoint of the boundary that the run stands at; the best one by training mean is pointed at."""
        path = self.writer.save(self.state_dict(), self.updates, {"mean_reward": self.mean_reward})
        if path is not None and self.updates >= self.config.ppo.save_best_after:
            save_best(self.run_dir.checkpoints, path, self.mean_reward)

    def state_dict(self) -> Dict[str, Any]:
        """rl_games' keys exactly, plus ``isaac_appo`` with all that makes the continuation exact."""
        pipeline = self.pipeline.state_dict(self.updates - 1)
        learner = pipeline.pop("learner")
        return {
            "model": learner["model"],
            "epoch": self.updates,
            "frame": self.env_steps,
            "optimizer": learner["optimizer"],
            "last_mean_rewards": self.mean_reward,
            "env_state": None,
            "isaac_appo": {
                "schema": SCHEMA,
                "version": __version__,
                "shape": shape_of(self.config),
                "learning_rate": learner["learning_rate"],
                "pipeline": pipeline,
                "episodes": [list(episode) for episode in self._episodes],
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
        learner["learning_rate"] = own["learning_rate"]
        self.pipeline.load_state_dict({**own["pipeline"], "learner": learner})
        self.updates = int(state["epoch"])
        self.resumed_env_steps = self.env_steps
        self._episodes.extend((float(r), int(n)) for r, n in own["episodes"])

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
        self.pipeline.collector.policy.bytes.copy_(self.pipeline.learner.policy.bytes)


def own_entry(state: Mapping[str, Any]) -> Optional[Mapping[str, Any]]:
    """The ``isaac_appo`` entry of a checkpoint, checked for its schema; ``None`` if it is rl_games' own."""
    own = state.get("isaac_appo")
    if own is not None and own.get("schema") != SCHEMA:
        raise CheckpointError(
            f"the checkpoint has schema {own.get('schema')} where version {__version__} reads schema {SCHEMA}. "
            "Use the version that wrote it"
        )
    return own


def _mean(values: List[Any]) -> float:
    return float(sum(values) / len(values)) if values else float("nan")


def _idle(busy: float, wall: float) -> float:
    return min(1.0, max(0.0, 1.0 - busy / max(wall, 1e-9)))
