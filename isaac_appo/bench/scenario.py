"""Scenarios by name: what runs in one block, and with how many threads.

========================  ==============================================================================================
``sim_E``                 ``env.step`` with random actions; resets, rewards and observations included
``raw_E``                 ``mujoco.rollout`` alone, doing the same physics again
``collect_P learn_L``     one stream alone; the learner on a rollout of an older version
``sync_E_T``              training in turns in one thread: E threads of physics, T of torch
``lockstep_lagK_P_L``     training at lag K, a thread per stream, with P and L threads each
``rl_games_E_T``          rl_games' own agent on the same environments; ``_compiled`` after it: with its torch_compile
========================  ==============================================================================================
"""

from __future__ import annotations

import itertools
import re
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

import torch

from isaac_appo.bench.problem import ENDLESS, Problem, Threads
from isaac_appo.bench.window import Block, Effort, StageClock, Window
from isaac_appo.schedule.pipeline import UpdateReport
from isaac_appo.schedule.program import Op

_KINDS = {
    "sim": (r"sim_(?P<e>\d+)", "env.step, random actions; threads: {physics}"),
    "raw": (r"raw_(?P<e>\d+)", "mujoco.rollout, the same physics; threads: {physics}"),
    "collect": (r"collect_(?P<p>\d+)", "policy stream alone; threads: {policy}"),
    "learn": (r"learn_(?P<l>\d+)", "learner stream alone; threads: {learner}"),
    "sync": (r"sync_(?P<e>\d+)_(?P<p>\d+)", "in turns; threads: physics {physics}, torch {policy}"),
    "lockstep": (
        r"lockstep_lag(?P<lag>\d)_(?P<p>\d+)_(?P<l>\d+)",
        "overlapped, lag {lag}; threads: policy {policy}, learner {learner}",
    ),
    "rl_games": (
        r"rl_games_(?P<e>\d+)_(?P<p>\d+)(?P<compiled>_compiled)?",
        "rl_games{compiled}; threads: physics {physics}, torch {policy}",
    ),
}
"""Pattern of the names, and one line for a table."""


class Scenario(NamedTuple):
    """A scenario and its threads."""

    name: str
    kind: str
    threads: Threads
    lag: int = 0
    compiled: bool = False

    @property
    def trains(self) -> bool:
        """Whether it is a whole training loop."""
        return self.kind in ("sync", "lockstep", "rl_games")

    @property
    def one_core(self) -> bool:
        """Whether it should keep exactly one core busy."""
        return self.kind != "lockstep" and self.threads.one_core_each

    @property
    def what(self) -> str:
        """One line for a table."""
        text = _KINDS[self.kind][1]
        return text.format(lag=self.lag, compiled=" compiled" * self.compiled, **self.threads._asdict())


def parse_scenario(name: str) -> Scenario:
    """The scenario of that name; :class:`ValueError` with the patterns if there is none."""
    for kind, (pattern, _) in _KINDS.items():
        match = re.fullmatch(pattern, name)
        if match:
            found = match.groupdict()
            policy = int(found.get("p") or found.get("e") or 1)
            learner = int(found.get("l") or policy)
            threads = Threads(int(found.get("e") or policy), policy, learner)
            if min(threads) < 1:
                raise ValueError(f"scenario {name}: threads are 1 or more")
            return Scenario(name, kind, threads, int(found.get("lag") or 0), bool(found.get("compiled")))
    known = "sim_E raw_E collect_P learn_L sync_E_T lockstep_lagK_P_L rl_games_E_T rl_games_E_T_compiled"
    raise ValueError(f"no scenario is called {name}. Numbers of threads and lag are filled in: {known}")


def default_scenarios(cores: int, quick: bool = False) -> List[str]:
    """Every thread split that makes sense on ``cores``; ``quick``: those without which there is no comparison."""
    solos, lockstep = ["sim_1", "raw_1", "collect_1", "learn_1"], ["lockstep_lag1_1_1"]
    splits = {(cores, 1), (cores, cores)}
    if not quick:
        splits.add((1, 1))
        lockstep.append("lockstep_lag2_1_1")
        solos += [f"{kind}_{cores}" for kind in ("sim", "raw") if cores > 1]
    half = cores // 2
    if half > 1:
        lockstep.append(f"lockstep_lag1_{half}_{half}")
        solos += [f"collect_{half}", f"learn_{half}"]
    turns = [f"{kind}_{e}_{t}" for kind in ("sync", "rl_games") for e, t in sorted(splits)]
    return solos + lockstep + turns


def run_block(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    """Run one block of a scenario from the common start; the process' torch threads are as before afterwards."""
    t, before = scenario.threads, torch.get_num_threads()
    torch.set_num_threads(t.learner if scenario.kind == "learn" else t.policy)
    try:
        return _RUNNERS[scenario.kind](problem, scenario, effort)
    finally:
        torch.set_num_threads(before)


def _repeat(window: Window, update: Callable[[int], None]) -> Block:
    index = 0
    update(index)
    while not window.tick():
        index += 1
        update(index)
    return window.block


def _sim(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    env, actions = problem.env(scenario.threads.physics), problem.actions()

    def update(index: int) -> None:
        for t in range(problem.horizon):
            at = (index * problem.horizon + t) % len(actions)
            if at == 0:  # what the tape holds
                problem.rewind(env)
            env.step(actions[at])

    return _repeat(Window(effort), update)


def _raw(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    step, steps = raw_rollout(problem, scenario.threads.physics), len(problem.tape())

    def update(index: int) -> None:
        for t in range(problem.horizon):
            step((index * problem.horizon + t) % steps)

    return _repeat(Window(effort), update)


def raw_rollout(problem: Problem, threads: int) -> Callable[[int], None]:
    """A function that does one step of the tape again: what the physics alone takes.

    It is ``mujoco.rollout`` as engine ``mujoco`` calls it, on the engine's arrays and threads, and nothing else.
    """
    engine: Any = problem.env(threads).engine
    ends = itertools.accumulate(len(part.models) for part in engine._parts)
    cuts = [(part, slice(end - len(part.models), end)) for part, end in zip(engine._parts, ends)]
    tape = [[p._replace(state=s[rows], control=c[rows]) for p, rows in cuts] for s, c in problem.tape()]

    def step(at: int) -> None:
        if engine._pool is None:
            engine._roll(tape[at][0])
        else:
            list(engine._pool.map(engine._roll, tape[at]))

    return step


def _alone(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    """One stream of a pipeline at lag 1, after two updates of both: slabs, snapshots and batch are those of a run."""
    pipeline = problem.pipeline(scenario.threads, lag=1, executor="inline", num_updates=2)
    pipeline.run()
    collector, learner, program, stages = (
        pipeline.workers[0].collector,
        pipeline.learner,
        pipeline.program,
        StageClock(),
    )

    def load(index: int) -> None:
        for slab in learner.slabs_of(index):
            slab.facts()
        learner.load(index, lag=1)

    operations: Dict[str, Callable[..., Any]] = {
        **pipeline.handlers(),
        # without the ledger, which needs both streams
        "begin": lambda worker, slab: None,
        "cut": lambda worker, slab: collector.state_dict(),
        "load": load,
        "boundary": lambda index: learner.metrics(),
    }
    timed = {name: stages.operation(name, operation) for name, operation in operations.items()}

    def update(index: int) -> None:
        steps = program.policy_steps(0, index) if scenario.kind == "collect" else program.learner_steps(index)
        for step in steps:
            if isinstance(step, Op):
                timed[step.name](*step.args)

    return _repeat(Window(effort, stages), update)


def _train(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    executor = "threads" if scenario.kind == "lockstep" else "inline"
    stages: Optional[StageClock] = None
    if executor == "inline":  # one stream works at a time, with helpers
        stages = StageClock(time.process_time)
    elif scenario.threads.one_core_each:
        stages = StageClock(time.thread_time)
    # the updates until rows have their full lag are part of the warm-up
    window = Window(effort._replace(warmup=effort.warmup + scenario.lag), stages)

    def on_boundary(report: UpdateReport) -> None:
        if window.tick():
            pipeline.stop()

    pipeline = problem.pipeline(scenario.threads, scenario.lag, executor, on_boundary)
    pipeline.wrap = stages.operation if stages else None
    pipeline.run()
    return window.block


def _rl_games(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    """In this process, on the same env object; what rl_games changes globally is put back (``torch_settings_kept``)."""
    from isaac_appo.bench.rl_games_run import MeasuredEnv, Observer
    from isaac_appo.integrations import rl_games

    stages = StageClock()
    window = Window(effort, stages)
    env = MeasuredEnv(problem.env(scenario.threads.physics), problem.rewind, stages)
    params, observer = problem.rl_games_params(), Observer(window.tick, stages)
    rl_games.train(params, env, ENDLESS, scenario.threads.policy, observer, scenario.compiled)
    return window.block


_RUNNERS: Dict[str, Callable[[Problem, Scenario, Effort], Block]] = {
    "sim": _sim,
    "raw": _raw,
    "collect": _alone,
    "learn": _alone,
    "sync": _train,
    "lockstep": _train,
    "rl_games": _rl_games,
}
