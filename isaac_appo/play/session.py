"""A checkpoint, the configuration that goes with it, and what it earns: what play, test, demo and export share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Dict, NamedTuple, Optional

from isaac_appo.budgets import available_cores
from isaac_appo.build import build_env, build_package_env
from isaac_appo.checkpoint import CheckpointError, load_checkpoint, read_best, resolve_resume
from isaac_appo.config import RunConfig
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.evaluation import Evaluation, play_episodes
from isaac_appo.play.agent import AGENTS, make_agent
from isaac_appo.play.film import film
from isaac_appo.tasks.registry import TaskError


class Policy(NamedTuple):
    """A checkpoint as read."""

    path: Path
    state: Dict[str, Any]

    @property
    def version(self) -> int:
        """Completed updates whose weights these are; rl_games' ``epoch`` where the checkpoint is its."""
        own = self.state.get("isaac_appo") or {}
        return int(own.get("policy_version", self.state.get("epoch", 0)))


def load_policy(checkpoint: str) -> Policy:
    """Read a checkpoint file, or the newest of a run directory; ``…/best.json`` means the file that it points at.

    Errors: CheckpointError naming what is wrong and what lies nearby.
    """
    path = Path(checkpoint).expanduser()
    if path.name == "best.json":
        best = read_best(path.parent)
        if best is None:
            raise CheckpointError(f"checkpoint={checkpoint}: it does not point at a checkpoint that exists")
        return Policy(best[0], load_checkpoint(best[0]))
    try:
        loaded = resolve_resume(str(path.absolute()), path)
    except CheckpointError as error:
        raise CheckpointError(str(error).replace("resume=", "checkpoint=")) from error
    assert loaded is not None
    return Policy(loaded[1], loaded[0])


def play_variant(config: RunConfig) -> RunConfig:
    """The same task to look at: ``task.play`` on top of ``task.env``, nothing staggered, nothing randomised."""
    c = config.task
    task = replace(c, env={**c.env, **c.play}, task={**c.task, "randomize": False})
    return replace(config, task=task, env=replace(config.env, stagger_resets=False))


def build_play_env(config: RunConfig, num_envs: int = 0) -> TaskEnv:
    """Fresh environments of the play variant; `eval.num_envs` of them unless told otherwise.

    Errors: TaskError for a task that another package brings: films, viewer and export read our own engines.
    """
    if config.task.package:
        what = "can be played, but not filmed, viewed or exported: its simulation belongs to its package"
        raise TaskError(f"task={config.task.package}:{config.task.name} {what}. Leave out video=true and viewer=true")
    threads = config.schedule.policy_threads or available_cores()
    return build_env(play_variant(config), num_envs or config.eval.num_envs, config.eval.seed, False, threads)


def play(
    config: RunConfig, policy: Optional[Policy], agent: str = "trained", video: Optional[Path] = None, length: int = 0
) -> Evaluation:
    """One full episode in each of `eval.num_envs` environments; `length` steps of the first are filmed into `video`.

    Errors: CheckpointError, EngineError, TaskError, VideoError.
    """
    own = build_play_env(config) if video or not config.task.package else None
    env: VecEnv = own or build_package_env(config, config.eval.num_envs, config.eval.seed)
    try:
        act = make_agent(agent, config, policy.state if policy else {}, env)
        if video is None or own is None:
            result = play_episodes(act, env, config.eval.seed)
        else:
            text = caption(config, policy, agent)
            with film(own, video, length, lambda: text) as draw:
                result = play_episodes(act, env, config.eval.seed, draw)
        return result._replace(agent=AGENTS[agent])
    finally:
        env.close()


def caption(config: RunConfig, policy: Optional[Policy], agent: str) -> str:
    """What an overlay says: task, policy version, and the lag that it was trained at."""
    if agent != "trained" or policy is None:
        return f"{config.task.name}   {AGENTS[agent]}"
    return f"{config.task.name}   policy version {policy.version}, trained at {config.schedule.limit}"
