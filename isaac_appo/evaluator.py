"""Evaluation and films during training: a thread of its own, on its own environments, with a copy of the weights.

Training never waits for it and never notices it: what it reads is copied at a boundary, it draws no random number that
training draws, and it runs at a lower priority. One job is in flight at most; what comes due meanwhile is skipped.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch
from torch import Tensor

from isaac_appo.build import build_env
from isaac_appo.config import RunConfig
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.evaluation import Evaluation, Watch, mean_action, play_episodes
from isaac_appo.policy.actor_critic import ActorCritic

NICENESS = 10
"""Of the thread, on Linux: the streams go first."""


class Due(NamedTuple):
    """What is to be done at a boundary."""

    evaluate: bool
    film: bool


class Job(NamedTuple):
    """One version to look at."""

    update: int
    version: int
    """Of the policy: what the result is known by."""
    state: Dict[str, Tensor]
    """A copy of the model's state dict."""
    due: Due
    checkpoint: Path
    """Where this version is stored."""


class Result(NamedTuple):
    """What came of a job; `error` says why something is missing."""

    job: Job
    evaluation: Optional[Evaluation]
    film: Optional[Path]
    seconds: float
    error: str


class _Stopped(Exception):  # noqa: N818 (no error: the film is long enough, or the run ends)
    pass


class Evaluator:
    """Runs `eval.every` and `capture_video` of one training run, on `model`, a copy of the network for it alone.

    `newest()` is the learner's version, for the lag in the caption of the films in `videos`; `log_dir` is for the
    engine's own log; `skipped` counts the jobs that came due while one was running.
    Errors: VideoError if films are asked for and cannot be made on this machine.
    """

    def __init__(
        self, config: RunConfig, model: ActorCritic, videos: Path, newest: Callable[[], int], log_dir: str = ""
    ) -> None:
        self.config, self.skipped = config, 0
        self._model, self._videos, self._newest = model, videos, newest
        self._results: List[Result] = []
        self._thread: Optional[threading.Thread] = None
        self._ending = threading.Event()
        self._evaluated, self._filmed = 0, -1  # where each was due last
        self._env = build_env(config, config.eval.num_envs, config.eval.seed, False, 1, log_dir)
        self._film_env = build_env(config, 1, config.eval.seed, False, 1, log_dir) if config.capture_video else None
        self._fresh = [env.state_dict() if env else {} for env in (self._env, self._film_env)]
        if config.capture_video:
            from isaac_appo.play.camera import check_camera  # MuJoCo's renderer: for films alone

            check_camera()

    def resume_at(self, update: int) -> None:
        """Whatever was due up to `update`, an earlier process has seen to."""
        self._evaluated, self._filmed = update, update

    def due(self, update: int) -> Due:
        """What is due after `update` updates; asked once per boundary whose weights are published."""
        due = self._due(update)
        self._evaluated = update if due.evaluate else self._evaluated
        self._filmed = update if due.film else self._filmed
        if any(due) and self.busy:
            self.skipped += 1
            return Due(False, False)
        return due

    def wants(self, update: int) -> bool:
        """Whether something will be due after `update` updates."""
        return any(self._due(update))

    def _due(self, update: int) -> Due:
        every, often, horizon = self.config.eval.every, self.config.capture_video_freq, self.config.ppo.horizon_length
        evaluate = every > 0 and update // every > self._evaluated // every
        film = self.config.capture_video and update * horizon // often > self._filmed * horizon // often
        return Due(evaluate, film)

    @property
    def busy(self) -> bool:
        """Whether a job is in flight."""
        return self._thread is not None and self._thread.is_alive()

    def start(self, job: Job) -> None:
        """Begin `job`; only while not busy."""
        self._thread = threading.Thread(target=self._work, args=(job,), name="evaluation", daemon=True)
        self._thread.start()

    def take_results(self) -> List[Result]:
        """What has been finished since the last call."""
        taken = self._results[:]
        del self._results[: len(taken)]
        return taken

    def close(self, wait: bool) -> None:
        """Let the job in flight end, or cut it short; then release the engines."""
        if not wait:
            self._ending.set()
        if self._thread is not None:
            self._thread.join()
        for env in (self._env, self._film_env):
            if env is not None:
                env.close()

    def _work(self, job: Job) -> None:
        started = time.perf_counter()
        evaluation, film, error = None, None, ""
        try:
            if sys.platform == "linux":  # niceness belongs to the thread there
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)
            torch.set_num_threads(1)
            self._model.load_state_dict(job.state)
            self._model.publish_statistics()
            if job.due.evaluate:
                evaluation = self._evaluate()
            if job.due.film:
                film = self._film(job)
        except _Stopped:
            return
        except Exception as fault:  # training goes on; the learner's thread says what happened
            error = f"{type(fault).__name__}: {fault}"
        self._results.append(Result(job, evaluation, film, time.perf_counter() - started, error))

    def _play(self, env: TaskEnv, fresh: Dict[str, Any], look: Watch = lambda step, returns: None) -> Evaluation:
        env.load_state_dict(fresh)  # the same episodes each time, as one at the end would play

        def watch(step: int, returns: Tensor) -> None:
            look(step, returns)
            if self._ending.is_set():
                raise _Stopped

        agent = mean_action(self._model, env, self.config.ppo.clip_actions)
        return play_episodes(agent, env, self.config.eval.seed, watch)

    def _evaluate(self) -> Evaluation:
        return self._play(self._env, self._fresh[0])

    def _film(self, job: Job) -> Path:
        from isaac_appo.play.film import film

        env, path = self._film_env, self._videos / f"update_{job.update:09d}.mp4"
        assert env is not None
        length = self.config.capture_video_len

        def caption() -> str:
            return f"{self.config.task.name}   policy version {job.version}, lag {self._newest() - job.version}"

        with film(env, path, length, caption) as draw:

            def look(step: int, returns: Tensor) -> None:
                draw(step, returns)
                if step + 1 >= length:
                    raise _Stopped

            with suppress(_Stopped):
                self._play(env, self._fresh[1], look)
        return path
