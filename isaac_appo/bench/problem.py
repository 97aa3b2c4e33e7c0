"""What is measured: one task's environments, started from one state in every block, and pipelines around them."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from isaac_appo.bench.window import STAGE_OF, StageClock
from isaac_appo.build import build_env, learner_settings, model_maker
from isaac_appo.config import RunConfig
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.schedule.executors.base import Handler
from isaac_appo.schedule.pipeline import Pipeline, PipelineSettings, UpdateReport
from isaac_appo.schedule.program import Lockstep

ENDLESS = 10**9
"""Updates of a program that is stopped from outside."""
WARM_UPDATES = 4
"""Updates before the state that every block starts from: feet have met the floor."""
TAPE_BYTES = 64 * 2**20
"""Most memory for recorded physics states."""


class Threads(NamedTuple):
    """Threads of physics, and of torch in each stream."""

    physics: int
    policy: int
    learner: int

    @property
    def one_core_each(self) -> bool:
        """Whether no stream uses more than its own thread."""
        return max(self) == 1


class Tape(NamedTuple):
    """What the physics did in some consecutive control steps: enough to do the same again without an environment."""

    states: List[Any]
    """Per step ``[N, 1 + nq + nv]`` float64, before it."""
    controls: List[Any]
    """Per step ``[N, substeps, nu]`` float64."""


class BenchPipeline(Pipeline):
    """A pipeline that puts the CPU time of its operations down to stages."""

    stages: Optional[StageClock] = None

    def handlers(self) -> Dict[str, Handler]:
        """See :meth:`Pipeline.handlers`."""
        handlers, stages = super().handlers(), self.stages
        if stages is None:
            return handlers
        return {name: stages.timed(STAGE_OF.get(name, "other"), handler) for name, handler in handlers.items()}


class Problem:
    """One configuration, ready to be measured; close it at the end.

    There is one environment object per number of physics threads, which is fixed when an engine is built; they are of
    one class and size and start every block from the same state, so that all scenarios have the same work.

    Args:
        common_start: false leaves out the warm-up and begins each block by a plain reset, which takes less memory.

    Attributes:
        rows: environment steps per update.
    """

    def __init__(self, config: RunConfig, common_start: bool = True) -> None:
        self.config = config
        self._common_start = common_start
        self.horizon = config.ppo.horizon_length
        self.rows = config.num_envs * self.horizon
        self.learner = learner_settings(config)
        self._envs: Dict[int, TaskEnv] = {}
        self._start: Optional[Dict[str, Any]] = None
        self._tape: Optional[Tape] = None

    def close(self) -> None:
        """Release the engines."""
        for env in self._envs.values():
            env.close()

    def env(self, threads: int) -> TaskEnv:
        """The environments whose physics uses ``threads``."""
        if threads not in self._envs:
            c = self.config
            self._envs[threads] = build_env(c, c.num_envs, c.seed, c.env.stagger_resets, threads)
        return self._envs[threads]

    def start(self) -> Optional[Dict[str, Any]]:
        """The collector's state that every block starts from, a few updates into training; ``None`` for a reset."""
        if self._start is None and self._common_start:
            pipeline = self._build(Threads(1, 1, 1), lag=0, executor="inline", num_updates=WARM_UPDATES)
            pipeline.run()
            self._start = pipeline.workers[0].collector.state_dict()
        return self._start

    def pipeline(
        self,
        threads: Threads,
        lag: int,
        executor: str,
        on_boundary: Callable[[UpdateReport], None] = lambda report: None,
        num_updates: int = ENDLESS,
        stages: Optional[StageClock] = None,
    ) -> BenchPipeline:
        """A new pipeline with initial weights, at the common start."""
        start = self.start()
        pipeline = self._build(threads, lag, executor, num_updates, on_boundary)
        if start is not None:
            pipeline.workers[0].collector.load_state_dict(start)
        pipeline.stages = stages
        return pipeline

    @staticmethod
    def stage_clock(threads: Threads, executor: str) -> Optional[StageClock]:
        """A clock that can tell the stages apart, if there is one."""
        if executor == "inline":  # one stream works at a time, with helpers
            return StageClock(time.process_time)
        return StageClock(time.thread_time) if threads.one_core_each else None

    def _build(
        self,
        threads: Threads,
        lag: int,
        executor: str,
        num_updates: int,
        on_boundary: Callable[[UpdateReport], None] = lambda report: None,
    ) -> BenchPipeline:
        config, env, learner = self.config, self.env(threads.physics), self.learner
        program = Lockstep(self.horizon, learner.epochs, learner.minibatches, num_updates, lag=lag)
        settings = PipelineSettings(
            executor, threads.policy, threads.learner, config.seed, config.ppo.clip_actions, config.env.max_nan_fraction
        )
        make_model = model_maker(config, env.num_obs, env.num_actions)
        return BenchPipeline([env], make_model, program, settings, learner, on_boundary)

    def rewind(self, env: TaskEnv) -> None:
        """Put ``env`` at the common start."""
        start = self.start()
        if start is None:
            env.reset()
        else:
            env.load_state_dict(start["env"])

    @property
    def tape_steps(self) -> int:
        """Control steps that the tape holds: a few rollouts, or what fits."""
        engine = self.env(1).engine.state_dict()
        size = sum(engine[key].numel() * 8 for key in ("state", "control") if key in engine)
        return max(2, min(4 * self.horizon, TAPE_BYTES // max(size, 1)))

    def actions(self) -> List[Tensor]:
        """Random actions in +-1, one ``[N, A]`` per step of the tape."""
        env = self.env(1)
        generator = torch.Generator().manual_seed(self.config.seed)
        shape = (self.tape_steps, env.num_envs, env.num_actions)
        return list(torch.rand(shape, generator=generator) * 2.0 - 1.0)

    def tape(self) -> Tape:
        """What the physics of the ``sim`` scenario does from the common start, recorded once.

        Raises :class:`ValueError` for an engine that does not say.
        """
        if self._tape is None:
            env = self.env(1)
            self.rewind(env)
            states, controls = [], []
            for action in self.actions():
                before = env.engine.state_dict()
                if not {"state", "control"} <= set(before):
                    raise ValueError(f"engine {env.engine.name} does not give its private state")
                states.append(before["state"].numpy())
                env.step(action)
                controls.append(env.engine.state_dict()["control"].numpy())
            self._tape = Tape(states, controls)
        return self._tape

    def rl_games_params(self) -> Dict[str, Any]:
        """The ``params:`` block as rl_games takes it. Raises :class:`ValueError` if rl_games cannot cut the batch."""
        size = self.learner.minibatch_size
        if size * self.learner.minibatches != self.rows:
            raise ValueError(f"rl_games needs a minibatch_size that divides {self.rows} rows; {size} does not")
        return rl_games_params(self.config, size)


def rl_games_params(config: RunConfig, minibatch_size: int) -> Dict[str, Any]:
    """``train.params`` of a configuration in rl_games' own words."""
    params, ppo = config.train.params, config.ppo
    shaper = ppo.reward_shaper
    names = (
        "horizon_length", "mini_epochs", "learning_rate", "lr_schedule", "schedule_type", "kl_threshold", "gamma",
        "tau", "e_clip", "clip_value", "critic_coef", "grad_norm", "truncate_grads", "entropy_coef",
        "bounds_loss_coef", "bound_loss_type", "normalize_input", "normalize_value", "normalize_advantage",
        "value_bootstrap", "weight_decay", "clip_actions", "games_to_track",
    )  # fmt: skip
    algorithm = {
        **{name: getattr(ppo, name) for name in names},
        "minibatch_size": minibatch_size,
        "reward_shaper": {
            "scale_value": shaper.scale_value,
            "shift_value": shaper.shift_value,
            "min_val": shaper.min_val,
            "max_val": shaper.max_val,
            "log_val": shaper.log_val,
        },
        "name": config.task.name,
        "env_name": "rlgpu",
        "ppo": True,
        "score_to_win": float("inf"),
    }
    return {
        "seed": config.seed,
        "algo": {"name": "a2c_continuous"},
        "model": {"name": params.model.name},
        "network": dict(params.network),
        "config": algorithm,
    }


def describe_problem(config: RunConfig) -> Dict[str, Any]:
    """What was trained."""
    learner = learner_settings(config)
    return {
        "task": config.task.name,
        "num_envs": config.num_envs,
        "horizon": config.ppo.horizon_length,
        "rows": config.num_envs * config.ppo.horizon_length,
        "minibatch_size": learner.minibatch_size,
        "minibatches": learner.minibatches,
        "epochs": learner.epochs,
        "network": dict(config.train.params.network).get("mlp", {}).get("units"),
        "substeps": config.task.sim.substeps,
        "seed": config.seed,
    }
