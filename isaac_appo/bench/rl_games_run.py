"""How a run of rl_games is measured without changing it: its environment, its observer, and three of its methods."""

from __future__ import annotations

from functools import partial
from typing import Any, Callable, Dict, Optional

from torch import Tensor

from isaac_appo.bench.window import StageClock
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.integrations.rl_games import AlgoObserver, EndRun, RlGamesEnv

_METHODS = {
    "get_action_values": "act",
    "get_values": "act",
    "discount_values": "targets",
    "prepare_dataset": "targets",
    "train_actor_critic": "minibatch",
}


class MeasuredEnv(RlGamesEnv):
    """The adapter, put by ``rewind`` at a given state, with the time of its steps put down to ``env.step``."""

    def __init__(self, env: TaskEnv, rewind: Callable[[TaskEnv], None], stages: StageClock) -> None:
        super().__init__(env)
        self._rewind = partial(rewind, env)
        self.step = stages.timed("env.step", self.step)  # type: ignore[method-assign]

    def reset(self) -> Dict[str, Tensor]:
        """New episodes, then the common start: observations are the environment's own tensor."""
        obs = super().reset()
        self._rewind()
        return obs


class Observer(AlgoObserver):
    """Calls ``tick`` after each epoch and ends the run when it says so.

    Args:
        tick: true ends the run.
        stages: where the time of the agent's methods goes, if anywhere.
    """

    def __init__(self, tick: Callable[[], bool], stages: Optional[StageClock] = None) -> None:
        super().__init__()
        self._tick, self._stages = tick, stages
        self.algo: Any = None

    def after_init(self, algo: Any) -> None:
        """The agent exists: time its methods from now on."""
        self.algo = algo
        if self._stages is not None:
            for name, stage in _METHODS.items():
                setattr(algo, name, self._stages.timed(stage, getattr(algo, name)))

    def after_print_stats(self, frame: int, epoch_num: int, total_time: float) -> None:
        """An epoch is over."""
        if self._tick():
            raise EndRun
