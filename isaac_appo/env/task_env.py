"""One of our tasks on an engine, as a vectorised environment of the `next_step` kind."""

from __future__ import annotations

from typing import Any, Dict, Mapping, Optional, Sequence, Tuple

import torch
from torch import Tensor

from isaac_appo.env.step_kernels import begin_step, finish_step, stagger_ages
from isaac_appo.env.vec_env import Space, VecEnv
from isaac_appo.kernels import launch, wp
from isaac_appo.sim.engine import Engine, EngineError, EngineSpec
from isaac_appo.sim.registry import engine_class
from isaac_appo.tasks.base import Task
from isaac_appo.tasks.registry import make_task, resolve_env_cfg, task_class

__all__ = ["TaskEnv", "make_env"]


class TaskEnv(VecEnv):
    """A task on an engine.

    An episode is truncated at age `episode_length - 1`, so that with the dead row that starts the next one it takes
    `episode_length` steps. With `stagger_resets` the very first episodes start at ages drawn uniformly from
    [0, episode_length), so that time-outs do not come all at once; those first episodes are shorter and count like any
    other. Later calls of `reset()` start at age 0; an env for evaluation should not stagger.

    A row whose physics broke, or whose observation or reward is not finite, is `invalid`: its reward is 0, its
    observation zero, it is terminated, and it starts a new episode in the next step.

    Attributes beyond `VecEnv`: task, engine, progress [N] int32 (age of the episode in steps), steps (calls of `reset`
    and `step` so far, which number the random draws).
    """

    autoreset = "next_step"

    def __init__(self, task: Task, engine: Engine, seed: int, stagger_resets: bool) -> None:
        self.task = task
        self.engine = engine
        self.seed = seed
        self.stagger_resets = stagger_resets
        self._started = False
        self.num_envs = engine.num_envs
        self.device = engine.device
        self.host_synchronous = engine.host_synchronous
        self.fault_names = engine.fault_names
        self.exclusive = engine.exclusive
        self.capturable = engine.capturable
        self.max_episode_length = task.episode_length
        clip_obs, clip_actions = task.cfg["clipObservations"], task.cfg["clipActions"]
        self.spaces = {
            "obs": Space((task.num_obs,), -clip_obs, clip_obs),
            "action": Space((task.num_actions,), -clip_actions, clip_actions),
        }
        n, device = self.num_envs, self.device
        self.obs, self.reward, self.terminated = task.obs, task.reward, task.terminated
        self.truncated = torch.zeros(n, dtype=torch.bool, device=device)
        self.invalid = torch.zeros(n, dtype=torch.bool, device=device)
        self.progress = torch.zeros(n, dtype=torch.int32, device=device)
        self._clock = torch.zeros(1, dtype=torch.int64, device=device)
        self._wp_clock = wp.from_torch(self._clock)
        self._wp = {key: wp.from_torch(getattr(self, key)) for key in ("truncated", "invalid", "progress")}
        self._wp.update({key: task.wp[key] for key in ("obs", "reward", "terminated", "fresh")})
        self._wp["broken"] = wp.from_torch(engine.invalid)

    def _launch(self, kernel: Any, inputs: Tuple[Any, ...], names: Tuple[str, ...]) -> None:
        arrays = [self._wp[name] for name in names]
        launch(kernel, self.num_envs, inputs=[*inputs, *arrays], device=str(self.device))

    @property
    def steps(self) -> int:
        """See the class; reading it waits for the device, where it is kept so that a captured step counts too."""
        return int(self._clock)

    def _observe(self) -> None:
        """Start the fresh rows' episodes, then observe and finish all rows."""
        self.task.reset(self._wp_clock)
        self.task.observe()
        names = ("fresh", "broken", "progress", "obs", "reward", "terminated", "truncated", "invalid")
        self._launch(finish_step, (self.max_episode_length, self.task.cfg["clipObservations"]), names)
        self._clock.add_(1)

    def reset(self) -> Tensor:
        """See `VecEnv`."""
        if self.stagger_resets and not self._started:
            self._launch(stagger_ages, (self.seed, 0, self.max_episode_length), ("progress",))
        else:
            self.progress.zero_()
        self.task.fresh.fill_(True)
        self.task.actions.zero_()
        self._started = True
        self._observe()
        return self.obs

    def step(self, actions_NA: Tensor) -> Tuple[Tensor, Tensor, Tensor, Tensor]:
        """See `VecEnv`. Actions beyond ±clipActions are clipped. Errors: EngineError before the first `reset()`."""
        if not self._started:
            raise EngineError("step() before reset(): call reset() once to start the episodes")
        self.task.apply(actions_NA)
        self.engine.step()
        self._launch(begin_step, (), ("terminated", "truncated", "fresh", "progress"))
        self._observe()
        return self.obs, self.reward, self.terminated, self.truncated

    def _saved(self) -> Dict[str, Tensor]:
        own = ("obs", "reward", "terminated", "truncated", "invalid", "progress")
        saved = {key: getattr(self, key) for key in own}
        saved.update({f"task.{key}": value for key, value in self.task.saved().items()})
        return saved

    def state_dict(self) -> Dict[str, Tensor]:
        """See `VecEnv`. Keys: this env's tensors, "steps" int64, "task.*" and "engine.*"."""
        state = {key: value.clone() for key, value in self._saved().items()}
        state["steps"] = self._clock[0].clone()
        state.update({f"engine.{key}": value for key, value in self.engine.state_dict().items()})
        return state

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """See `VecEnv`: continues bit for bit. Errors: EngineError for a state of another env."""
        mine, prefix = self._saved(), "engine."
        engine_state = {key[len(prefix) :]: value for key, value in state.items() if key.startswith(prefix)}
        own = {key: value for key, value in state.items() if not key.startswith(prefix)}
        odd = sorted(set(own) ^ {*mine, "steps"})
        odd += sorted(key for key in set(own) & set(mine) if own[key].shape != mine[key].shape)
        if odd:
            raise EngineError(
                f"saved env state does not fit task {self.task.name}, N={self.num_envs}: {', '.join(odd)}"
            )
        self.engine.load_state_dict(engine_state)
        for key, tensor in mine.items():
            tensor.copy_(own[key])
        self._clock.fill_(int(own["steps"]))
        self._started = int(own["steps"]) > 0

    def count_faults(self) -> Optional[Tensor]:
        """See `VecEnv`."""
        return self.engine.count_faults()

    def check(self, faults: Optional[Sequence[int]] = None) -> None:
        """See `VecEnv`."""
        self.engine.check(faults)

    def close(self) -> None:
        """See `VecEnv`."""
        self.engine.close()


def make_env(
    task_name: str,
    env_cfg: Mapping[str, Any],
    sim_dt: float = 0.0166,
    substeps: int = 2,
    num_envs: int = 1,
    seed: int = 0,
    threads: int = 1,
    device: str = "cpu",
    stagger: bool = False,
    log_dir: str = "",
    engine: str = "mujoco",
    engine_options: Optional[Mapping[str, Any]] = None,
) -> TaskEnv:
    """A task by name on an engine by name, ready for `reset()`.

    Args:
        task_name: a key of `registry.TASKS`, or `module:Class`.
        env_cfg: the user's `task.env` settings; what is missing takes the task's default.
        sim_dt: s, time of one env step. substeps: physics steps in it.
        seed: of resets and stagger. threads: CPU threads for the physics. log_dir: folder for the engine's log.
        engine: a key of `isaac_appo.sim.registry.ENGINES`. engine_options: what that engine alone understands.

    Errors: TaskError for an unknown task or setting, EngineError for what the engine refuses.
    """
    resolve_env_cfg(task_name, env_cfg)  # a wrong setting should be told before a simulation is built
    cls = task_class(task_name)
    options = engine_options or {}
    spec = EngineSpec(cls.model_file, num_envs, device, sim_dt, substeps, cls.sites, threads, log_dir, options)
    built = engine_class(engine)(spec)
    task = make_task(task_name, env_cfg, built, seed)
    return TaskEnv(task, built, seed, stagger)
