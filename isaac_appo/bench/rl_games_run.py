"""How a run of rl_games is measured without changing it: its environment, its observer, and three of its methods."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Tuple

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

    def __init__(self, env: TaskEnv, rewind: Callable[[TaskEnv], None], stages: Optional[StageClock] = None) -> None:
        super().__init__(env)
        self._task_env, self._rewind = env, rewind
        self._step = super().step if stages is None else stages.timed("env.step", super().step)

    def reset(self) -> Dict[str, Tensor]:
        """New episodes, then the common start: observations are the environment's own tensor."""
        obs = super().reset()
        self._rewind(self._task_env)
        return obs

    def step(self, actions: Tensor) -> Tuple[Dict[str, Tensor], Tensor, Tensor, Dict[str, Tensor]]:
        """See :class:`RlGamesEnv`."""
        return self._step(actions)


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
