"""What is measured: one task's environments, started from one state in every block, and pipelines around them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple

import numpy as np
import torch
from torch import Tensor

from isaac_appo.build import build_env, learner_settings, model_maker, pipeline_settings
from isaac_appo.config import RunConfig
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.schedule.executors.base import Handler
from isaac_appo.schedule.pipeline import Pipeline, UpdateReport
from isaac_appo.schedule.program import Lockstep

ENDLESS = 10**9
"""Updates of a program that is stopped from outside."""


class Threads(NamedTuple):
    """Threads of physics, and of torch in each stream."""

    physics: int
    policy: int
    learner: int

    @property
    def one_core_each(self) -> bool:
        """Whether no stream uses more than its own thread."""
        return max(self) == 1


class WrappedPipeline(Pipeline):
    """A pipeline whose operations are what ``wrap(name, operation)`` makes of them, if it is set before the run."""

    wrap: Optional[Callable[[str, Handler], Handler]] = None

    def handlers(self) -> Dict[str, Handler]:
        """See :meth:`Pipeline.handlers`."""
        handlers, wrap = super().handlers(), self.wrap
        return handlers if wrap is None else {name: wrap(name, handler) for name, handler in handlers.items()}


class Problem:
    """One configuration, ready to be measured; close it at the end.

    There is one environment object per number of physics threads, which is fixed when an engine is built; they are of
    one class and size and start every block from the same state, so that all scenarios have the same work.

    Args:
        common_start: false leaves out the warm-up and begins each block by a plain reset, which takes less memory.

    Attributes:
        rows: environment steps per update.
        start: the collector's state that every block starts from, a few updates into training; ``None`` for a reset.
    """

    def __init__(self, config: RunConfig, common_start: bool = True) -> None:
        self.config = config
        self.horizon = config.ppo.horizon_length
        self.rows = config.num_envs * self.horizon
        self.learner = learner_settings(config)
        self._envs: Dict[int, TaskEnv] = {}
        self._tape: List[Tuple[np.ndarray, np.ndarray]] = []
        self.start: Optional[Dict[str, Any]] = None
        if common_start:
            # after four updates feet have met the floor
            pipeline = self.pipeline(Threads(1, 1, 1), lag=0, executor="inline", num_updates=4)
            pipeline.run()
            self.start = pipeline.workers[0].collector.state_dict()

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

    def pipeline(
        self,
        threads: Threads,
        lag: int,
        executor: str,
        on_boundary: Callable[[UpdateReport], None] = lambda report: None,
        num_updates: int = ENDLESS,
    ) -> WrappedPipeline:
        """A new pipeline with initial weights, at the common start."""
        env, learner = self.env(threads.physics), self.learner
        program = Lockstep(self.horizon, learner.epochs, learner.minibatches, num_updates, lag=lag)
        settings = pipeline_settings(self.config)._replace(
            executor=executor, policy_threads=threads.policy, learner_threads=threads.learner
        )
        make_model = model_maker(self.config, env.num_obs, env.num_actions)
        pipeline = WrappedPipeline([env], make_model, program, settings, learner, on_boundary)
        if self.start is not None:
            pipeline.workers[0].collector.load_state_dict(self.start)
        return pipeline

    def rewind(self, env: TaskEnv) -> None:
        """Put ``env`` at the common start."""
        if self.start is None:
            env.reset()
        else:
            env.load_state_dict(self.start["env"])

    def actions(self) -> List[Tensor]:
        """Random actions in +-1, one ``[N, A]`` per step of the tape: of four rollouts, or what fits into 64 MiB."""
        env = self.env(1)
        engine = env.engine.state_dict()
        size = sum(engine[key].numel() * 8 for key in ("state", "control") if key in engine)
        steps = max(2, min(4 * self.horizon, 2**26 // max(size, 1)))
        generator = torch.Generator().manual_seed(self.config.seed)
        return list(torch.rand((steps, env.num_envs, env.num_actions), generator=generator) * 2.0 - 1.0)

    def tape(self) -> List[Tuple[np.ndarray, np.ndarray]]:
        """What the physics of the ``sim`` scenario does from the common start, recorded once.

        Per control step the states before it ``[N, 1 + nq + nv]`` and the controls ``[N, substeps, nu]``, float64:
        enough to do the same again without an environment. Raises :class:`ValueError` for an engine that does not say.
        """
        if not self._tape:
            env = self.env(1)
            self.rewind(env)
            for action in self.actions():
                before = env.engine.state_dict()
                if not {"state", "control"} <= set(before):
                    raise ValueError(f"engine {env.engine.name} does not give its private state")
                env.step(action)
                self._tape.append((before["state"].numpy(), env.engine.state_dict()["control"].numpy()))
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
    names = (
        "horizon_length", "mini_epochs", "learning_rate", "lr_schedule", "schedule_type", "kl_threshold", "gamma",
        "tau", "e_clip", "clip_value", "critic_coef", "grad_norm", "truncate_grads", "entropy_coef",
        "bounds_loss_coef", "bound_loss_type", "normalize_input", "normalize_value", "normalize_advantage",
        "value_bootstrap", "weight_decay", "clip_actions", "games_to_track",
    )  # fmt: skip
    algorithm = {
        **{name: getattr(ppo, name) for name in names},
        "minibatch_size": minibatch_size,
        "reward_shaper": asdict(ppo.reward_shaper),
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
