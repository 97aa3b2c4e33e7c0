"""Time to a return: seconds of training until a deterministic evaluation reaches it, for our trainer and for rl_games.

Both train on the same environment class with the same settings, and stop for an evaluation after the same numbers of
updates. While one is under way the clock stands still and nobody collects: our policy stream is held as well.
"""

from __future__ import annotations

import contextlib
import threading
import time
from statistics import median
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence

from isaac_appo.bench import machine
from isaac_appo.bench.files import machine_lines, problem_line, table
from isaac_appo.bench.load import Limits, LoadMeter, other_load_now, other_load_warnings
from isaac_appo.bench.problem import Problem, WrappedPipeline, describe_problem, rl_games_params
from isaac_appo.bench.scenario import Scenario, default_scenarios, parse_scenario, run_block
from isaac_appo.bench.window import Effort
from isaac_appo.budgets import measure_update, resolve_budgets
from isaac_appo.build import build_env, build_program, build_workers, learner_settings, model_maker, pipeline_settings
from isaac_appo.config import RunConfig
from isaac_appo.evaluation import evaluate
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.schedule.executors.base import Handler
from isaac_appo.schedule.pipeline import UpdateReport

TRIAL = Effort(1, 3)
"""A look at each thread setting of rl_games."""
NUMBERS = ("seconds", "updates", "return")


class Race(NamedTuple):
    """The rules.

    Attributes:
        target: deterministic return that ends a run.
        every: updates between evaluations.
        cores: threads of an evaluation.
    """

    target: float
    every: int
    cores: int


class Hold:
    """Lets policy streams be stopped between two of their operations, while the learner is at a boundary."""

    def __init__(self, workers: int) -> None:
        self._go, self._idle = threading.Event(), [threading.Lock() for _ in range(workers)]
        self._go.set()

    def wrap(self, name: str, operation: Handler) -> Handler:
        """``operation``; one of a policy stream begins only while nothing is held."""

        def call(worker: int, *args: int) -> None:
            self._go.wait()
            with self._idle[worker]:
                operation(worker, *args)

        return call if name in ("begin", "adopt", "pick", "copy", "act", "step", "bootstrap", "cut") else operation

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Let nothing begin, once what is under way has ended."""
        self._go.clear()
        try:
            with contextlib.ExitStack() as workers:
                for idle in self._idle:
                    workers.enter_context(idle)
                yield
        finally:
            self._go.set()


class Judge:
    """Evaluates policies in environments of its own, always the same episodes; keeps a run's history and its clock."""

    def __init__(self, config: RunConfig, race: Race) -> None:
        self._config, self._race = config, race
        self.env = build_env(config, config.eval.num_envs, config.eval.seed, False, race.cores)
        self._fresh = self.env.state_dict()
        self.history: List[Dict[str, float]] = []
        self._spent = self._since = 0.0

    def go(self) -> None:
        """The clock starts, or goes on."""
        self._since = time.perf_counter()

    def reached(self, updates: int, policy: Callable[[], ActorCritic]) -> bool:
        """Evaluate while the clock stands still; whether the target is reached."""
        self._spent += time.perf_counter() - self._since
        self.env.load_state_dict(self._fresh)
        mean = evaluate(policy(), self.env, self._config.eval.seed, self._config.ppo.clip_actions).mean
        self.history.append({"updates": updates, "seconds": self._spent, "return": mean})
        self.go()
        return mean >= self._race.target


def run_ours(config: RunConfig, race: Race) -> List[Dict[str, float]]:
    """Train with the configured schedule; returns the history of evaluations. ``max_iterations`` is the end."""
    config, _ = resolve_budgets(config, None, measure_update, race.cores)
    judge, envs = Judge(config, race), build_workers(config, "")
    hold = Hold(len(envs))

    def on_boundary(report: UpdateReport) -> None:
        updates = report.update + 1
        if updates % race.every == 0:
            with hold.closed():
                if judge.reached(updates, lambda: pipeline.learner.model):
                    pipeline.stop()

    learner = learner_settings(config)
    make_model = model_maker(config, envs[0].num_obs, envs[0].num_actions)
    program, settings = build_program(config, learner.minibatches), pipeline_settings(config)
    pipeline = WrappedPipeline(envs, make_model, program, settings, learner, on_boundary)
    pipeline.wrap = hold.wrap
    try:
        judge.go()
        pipeline.run()
    finally:
        for env in (judge.env, *envs):
            env.close()
    return judge.history


def run_rl_games(config: RunConfig, race: Race, scenario: Scenario) -> List[Dict[str, float]]:
    """The same with rl_games, with the threads of ``scenario``."""
    from isaac_appo.bench.rl_games_run import Observer
    from isaac_appo.integrations import rl_games

    env = build_env(config, config.num_envs, config.seed, config.env.stagger_resets, scenario.threads.physics)
    judge, model = Judge(config, race), model_maker(config, env.num_obs, env.num_actions)()

    def policy() -> ActorCritic:
        model.load_state_dict(observer.algo.model.state_dict(), strict=True)
        model.publish_statistics()
        return model

    def tick() -> bool:
        updates = observer.algo.epoch_num
        return updates % race.every == 0 and judge.reached(updates, policy)

    class Started(Observer):
        def after_init(self, algo: Any) -> None:
            super().after_init(algo)
            judge.go()  # what comes before is construction

    observer = Started(tick)
    params = rl_games_params(config, learner_settings(config).minibatch_size)
    try:
        adapter = rl_games.RlGamesEnv(env)
        rl_games.train(params, adapter, config.max_iterations, scenario.threads.policy, observer)
    finally:
        for each in (judge.env, env):
            each.close()
    return judge.history


def fastest_rl_games(config: RunConfig, cores: int, say: Callable[[str], None]) -> Scenario:
    """rl_games' best thread setting by a short trial of each."""
    scenarios = [s for s in map(parse_scenario, default_scenarios(cores)) if s.kind == "rl_games"]
    problem = Problem(config)
    try:
        times = {s: run_block(problem, s, TRIAL).update_s for s in scenarios}
    finally:
        problem.close()
    best = min(times, key=times.__getitem__)
    say("rl_games' threads: " + ", ".join(f"{s.name} {1e3 * t:.0f} ms" for s, t in times.items()) + f"; {best.name}")
    return best


def run_race(
    configs: Sequence[RunConfig], race: Race, say: Callable[[str], None] = lambda text: None
) -> Dict[str, Any]:
    """Race both systems on every configuration (one a seed), in turns. Returns the report.

    Raises :class:`ValueError` if rl_games cannot cut the batch.
    """
    first = configs[0]
    warnings = other_load_warnings(other_load_now(), Limits())
    scenario = fastest_rl_games(first, race.cores, say)
    runners: Dict[str, Callable[[RunConfig], List[Dict[str, float]]]] = {
        "ours": lambda config: run_ours(config, race),
        "rl_games": lambda config: run_rl_games(config, race, scenario),
    }
    runs: List[Dict[str, Any]] = []
    for turn, config in enumerate(configs):
        for system in sorted(runners, reverse=turn % 2 == 1):  # who goes first changes
            meter = LoadMeter()
            history = runners[system](config)
            who = {"system": system, "seed": config.seed, "other_cores": meter.stop().other_cores}
            runs.append({**finish(history, race.target), **who, "history": history})
            say(f"{system}, seed {config.seed}: {_told(runs[-1], race.target)}")
    s = first.schedule
    return {
        "target": race.target,
        "every": race.every,
        "runs": runs,
        "systems": {"ours": f"isaac_appo {s.name}, lag {s.lag}", "rl_games": scenario.what},
        **summarise(runs),
        "problem": describe_problem(first),
        "machine": machine.describe(),
        "warnings": warnings,
    }


def finish(history: Sequence[Dict[str, float]], target: float) -> Dict[str, Any]:
    """When the target was reached: seconds, updates and the return then; ``None`` for each if it was not."""
    point = next((point for point in history if point["return"] >= target), {})
    return {number: point.get(number) for number in NUMBERS}


def summarise(runs: Sequence[Dict[str, Any]]) -> Dict[str, Any]:
    """Medians, the ratio of them, and the ratio per seed (ours / rl_games: below 1 is faster)."""
    times = {s: {r["seed"]: r["seconds"] for r in runs if r["system"] == s} for s in ("ours", "rl_games")}
    missing = [f"{r['system']} seed {r['seed']}" for r in runs if r["seconds"] is None]
    if missing:
        failed = f"the target was not reached by {', '.join(missing)}: raise max_iterations"
        return {"failed": failed, "median_s": None, "ratio_of_medians": None, "ratio_by_seed": None}
    medians = {s: median(t.values()) for s, t in times.items()}
    by_seed = {str(seed): times["ours"][seed] / times["rl_games"][seed] for seed in times["ours"]}
    ratio = medians["ours"] / medians["rl_games"]
    return {"failed": "", "median_s": medians, "ratio_of_medians": ratio, "ratio_by_seed": by_seed}


def _told(run: Dict[str, Any], target: float) -> str:
    if run["seconds"] is None:
        best = max((p["return"] for p in run["history"]), default=float("nan"))
        return f"return {target:g} was not reached, best {best:.1f}"
    return f"return {run['return']:.1f} after {run['seconds']:.1f} s, {run['updates']:.0f} updates"


def race_markdown(report: Mapping[str, Any]) -> str:
    """The report of the race."""
    rows = [
        [r["system"], str(r["seed"]), *("-" if r[k] is None else f"{r[k]:.1f}" for k in NUMBERS)]
        for r in report["runs"]
    ]
    systems, medians = report["systems"], report["median_s"]
    rule = f"Seconds of training until an evaluation, one every {report['every']} updates, reaches it."
    parts = [
        f"# Time to a return of {report['target']:g}",
        problem_line(report["problem"]),
        machine_lines(report),
        f"{rule} ours: {systems['ours']}; {systems['rl_games']}.",
        table(["system", "seed", *NUMBERS], rows),
    ]
    if medians is not None:
        seeds = ", ".join(f"seed {seed}: {ratio:.2f}" for seed, ratio in report["ratio_by_seed"].items())
        times = f"ours {medians['ours']:.1f} s, rl_games {medians['rl_games']:.1f} s"
        parts.append(f"Medians: {times}: {report['ratio_of_medians']:.2f}x ({seeds}).")
    return "\n\n".join(parts) + "\n"
