"""`hydra/sweeper=optuna`: the next run's values are chosen from the results of those before it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, Sequence

from hydra.core.override_parser.types import IntervalSweep

from isaac_appo.sweep.plan import Axis, Job


class Search:
    """A study of `options["n_trials"]` runs, stored in the sweep's folder, so that the same command goes on with it."""

    def __init__(self, axes: Sequence[Axis], options: Mapping[str, Any], name: str, folder: Path) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._optuna, self._trials = optuna, int(options["n_trials"])
        self.study = optuna.create_study(
            storage=options["storage"] or f"sqlite:///{folder / 'optuna.db'}",
            sampler=optuna.samplers.TPESampler(seed=options["seed"]),
            study_name=options["study_name"] or name,
            direction=options["direction"],
            load_if_exists=True,
        )
        self._space = {axis.key: self._distribution(axis) for axis in axes}
        self._asked: Dict[int, Any] = {}

    def jobs(self, make: Callable[[int, Dict[str, str]], Job]) -> Iterator[Job]:
        """The runs that are left, each asked for when it is drawn; `make(trial, values)` gives a job its words."""
        ended = [t for t in self.study.trials if t.state.is_finished()]
        for _ in range(self._trials - len(ended)):
            trial = self.study.ask(self._space)
            job = make(trial.number, {key: str(value) for key, value in trial.params.items()})
            self._asked[job.number] = trial
            yield job

    def tell(self, job: Job, reward: float) -> None:
        """A run's final reward; NaN says that it failed."""
        ended = {"state": self._optuna.trial.TrialState.FAIL} if math.isnan(reward) else {"values": reward}
        self.study.tell(self._asked.pop(job.number), **ended)

    def _distribution(self, axis: Axis) -> Any:
        kinds, value = self._optuna.distributions, axis.override.value()
        if not isinstance(value, IntervalSweep):
            return kinds.CategoricalDistribution(axis.values)
        whole = isinstance(value.start, int) and isinstance(value.end, int)
        kind = kinds.IntDistribution if whole else kinds.FloatDistribution
        return kind(value.start, value.end, log="log" in value.tags)
