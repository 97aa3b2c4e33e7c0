"""Scenarios by name: what runs in one block, and with how many threads.

==============================  ========================================================================================
``sim_E``                       ``env.step`` with random actions; resets, rewards and observations included
``raw_E``                       ``mujoco.rollout`` alone, doing the same physics again
``collect_P``                   the policy stream alone: act, step, hand-over; no learner
``learn_L``                     the learner stream alone, on a rollout of an older version; no simulation
``sync_E_T``                    training in turns in one thread: E threads of physics, T of torch
``lockstep_lagK_P_L``           training at lag K, a thread per stream, with P and L threads each
``rl_games_E_T[_compiled]``     rl_games' own agent on the same environments; ``_compiled``: with its ``torch_compile``
==============================  ========================================================================================
"""

from __future__ import annotations

import contextlib
import re
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import numpy as np
import torch

from isaac_appo.bench.problem import ENDLESS, BenchPipeline, Problem, Tape, Threads
from isaac_appo.bench.window import STAGE_OF, Block, Effort, StageClock, Window
from isaac_appo.schedule.pipeline import UpdateReport
from isaac_appo.schedule.program import Op, Step

_NAMES = {
    "sim": r"sim_(?P<e>\d+)",
    "raw": r"raw_(?P<e>\d+)",
    "collect": r"collect_(?P<p>\d+)",
    "learn": r"learn_(?P<l>\d+)",
    "sync": r"sync_(?P<e>\d+)_(?P<p>\d+)",
    "lockstep": r"lockstep_lag(?P<lag>\d)_(?P<p>\d+)_(?P<l>\d+)",
    "rl_games": r"rl_games_(?P<e>\d+)_(?P<p>\d+)(?P<compiled>_compiled)?",
}
TRAINING = ("sync", "lockstep", "rl_games")


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
        return self.kind in TRAINING

    @property
    def one_core(self) -> bool:
        """Whether it should keep exactly one core busy."""
        return self.kind != "lockstep" and self.threads.one_core_each

    @property
    def what(self) -> str:
        """One line for a table."""
        t = self.threads
        split = f"threads: physics {t.physics}, torch {t.policy}"
        return {
            "sim": f"env.step, random actions; threads: {t.physics}",
            "raw": f"mujoco.rollout, the same physics; threads: {t.physics}",
            "collect": f"policy stream alone; threads: {t.policy}",
            "learn": f"learner stream alone; threads: {t.learner}",
            "sync": f"in turns; {split}",
            "lockstep": f"overlapped, lag {self.lag}; threads: policy {t.policy}, learner {t.learner}",
            "rl_games": f"rl_games{' compiled' * self.compiled}; {split}",
        }[self.kind]


def parse_scenario(name: str) -> Scenario:
    """The scenario of that name; :class:`ValueError` with the patterns if there is none."""
    for kind, pattern in _NAMES.items():
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
    solos = ["sim_1", "raw_1", "collect_1", "learn_1"]
    splits = sorted({(1, 1), (cores, 1), (cores, cores)})
    if quick:
        splits = sorted({(cores, 1), (cores, cores)})
    else:
        solos += [f"{kind}_{cores}" for kind in ("sim", "raw") if cores > 1]
    lockstep = ["lockstep_lag1_1_1"] + ([] if quick else ["lockstep_lag2_1_1"])
    half = cores // 2
    if half > 1:
        lockstep.append(f"lockstep_lag1_{half}_{half}")
        solos += [f"collect_{half}", f"learn_{half}"]
    turns = [f"{kind}_{e}_{t}" for kind in ("sync", "rl_games") for e, t in splits]
    return solos + lockstep + turns


def run_block(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    """Run one block of a scenario from the common start; the process' torch settings are as before afterwards."""
    problem.start()  # once, before the clock
    return _RUNNERS[scenario.kind](problem, scenario, effort)


@contextlib.contextmanager
def _torch_threads(threads: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _repeat(window: Window, update: Callable[[int], None]) -> Block:
    index = 0
    while True:
        update(index)
        index += 1
        if window.tick():
            return window.block


# ----------------------------------------------------------------------------------------------------------- simulation


def _sim(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    env, actions = problem.env(scenario.threads.physics), problem.actions()
    steps = iter(range(10**12))

    def update(index: int) -> None:
        for _ in range(problem.horizon):
            at = next(steps) % len(actions)
            if at == 0:  # what the tape holds
                problem.rewind(env)
            env.step(actions[at])

    with _torch_threads(scenario.threads.physics):
        return _repeat(Window(effort), update)


def _raw(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    tape = problem.tape()
    steps = iter(range(10**12))
    with contextlib.closing(RawRollout(problem, tape, scenario.threads.physics)) as rollout:

        def update(index: int) -> None:
            for _ in range(problem.horizon):
                rollout.step(next(steps) % len(tape.states))

        return _repeat(Window(effort), update)


class RawRollout:
    """``mujoco.rollout`` on the engine's model file, with its step and substeps: what the physics alone takes.

    The rows are cut into one part a thread, the arrays are made once and the arguments go unchecked, as in the engine.
    """

    def __init__(self, problem: Problem, tape: Tape, threads: int) -> None:
        import inspect

        import mujoco
        from mujoco import rollout

        from isaac_appo.sim.mujoco_model import load_model

        spec = problem.env(threads).engine.spec
        model, rows = load_model(spec), spec.num_envs
        self._tape, self._many = tape, "nroll" not in inspect.signature(rollout.rollout).parameters
        self._model, self._rollout = model, rollout.rollout
        edges = np.linspace(0, rows, min(threads, rows) + 1).astype(int)
        self._parts = [(int(a), int(b), mujoco.MjData(model)) for a, b in zip(edges[:-1], edges[1:])]
        self._states = np.zeros((rows, spec.substeps, tape.states[0].shape[1]))
        self._sensors = np.zeros((rows, spec.substeps, model.nsensordata))
        self._warmstart = np.zeros((rows, model.nv))
        self._pool = ThreadPoolExecutor(len(self._parts)) if len(self._parts) > 1 else None

    def step(self, at: int) -> None:
        """Do step ``at`` of the tape again."""
        if self._pool is None:
            self._roll(self._parts[0], at)
        else:
            list(self._pool.map(lambda part: self._roll(part, at), self._parts))

    def _roll(self, part: Any, at: int) -> None:
        first, last, data = part
        rows, steps = slice(first, last), self._states.shape[1]
        arrays: Dict[str, Any] = {
            "nstep": steps,
            "initial_warmstart": self._warmstart[rows],
            "state": self._states[rows],
            "sensordata": self._sensors[rows] if self._sensors.shape[2] else None,
            "skip_checks": True,
        }
        state, control = self._tape.states[at][rows], self._tape.controls[at][rows]
        if self._many:
            self._rollout([self._model] * (last - first), [data], state, control, **arrays)
        else:  # before MuJoCo 3.2.7
            self._rollout(self._model, data, state, control, nroll=last - first, **arrays)

    def close(self) -> None:
        """End the threads."""
        if self._pool is not None:
            self._pool.shutdown()


# ------------------------------------------------------------------------------------------------------- the two phases


def _alone(
    problem: Problem, threads: Threads, stages: StageClock
) -> Tuple[BenchPipeline, Dict[str, Callable[..., None]]]:
    """A pipeline at lag 1 that has done two updates, so that its slabs, snapshots and batch hold what they hold in a
    run, and the operations of each stream without the accounts of the ledger, which needs both."""
    pipeline = problem.pipeline(threads, lag=1, executor="inline", num_updates=2)
    pipeline.run()
    learner, worker, ring, program = pipeline.learner, pipeline.workers[0], pipeline.ring, pipeline.program

    def load(index: int) -> None:
        for slab in learner.slabs_of(index):
            slab.facts()
        learner.load(index, lag=1)

    def finish(index: int) -> None:
        learner.finish(index)
        for slab in learner.slabs_of(index):
            slab.finished_episodes()

    operations: Dict[str, Callable[..., Any]] = {
        "begin": lambda worker, slab: None,
        "adopt": lambda _, slab, snapshot: ring.adopt(worker.policy, program.slot(program.num_updates)),
        "act": lambda _, slab, t: worker.collector.act(slab, t),
        "step": lambda _, slab, t: worker.collector.step(slab, t),
        "bootstrap": lambda _, slab: worker.collector.bootstrap(slab),
        "cut": lambda _, slab: worker.collector.state_dict(),
        "load": load,
        "proximal": learner.proximal,
        "targets": learner.targets,
        "minibatch": learner.minibatch,
        "finish": finish,
        "publish": lambda snapshot: ring.publish(learner.policy, program.slot(snapshot)),
        "boundary": lambda index: learner.metrics(),
    }
    timed = {name: stages.timed(STAGE_OF.get(name, "other"), f) for name, f in operations.items()}
    return pipeline, timed


def _run_ops(steps: Sequence[Step], operations: Mapping[str, Callable[..., None]]) -> None:
    for step in steps:
        if isinstance(step, Op):
            operations[step.name](*step.args)


def _collect(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    stages = StageClock()
    with _torch_threads(scenario.threads.policy):
        pipeline, operations = _alone(problem, scenario.threads, stages)
        program = pipeline.program
        return _repeat(Window(effort, stages), lambda i: _run_ops(program.policy_steps(0, i), operations))


def _learn(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    stages = StageClock()
    with _torch_threads(scenario.threads.learner):
        pipeline, operations = _alone(problem, scenario.threads, stages)
        program = pipeline.program
        return _repeat(Window(effort, stages), lambda i: _run_ops(program.learner_steps(i), operations))


# ------------------------------------------------------------------------------------------------------------- training


def _train(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    executor = "threads" if scenario.kind == "lockstep" else "inline"
    stages = problem.stage_clock(scenario.threads, executor)
    # the updates until rows have their full lag are part of the warm-up
    window = Window(effort._replace(warmup=effort.warmup + scenario.lag), stages)

    def on_boundary(report: UpdateReport) -> None:
        if window.tick():
            pipeline.stop()

    with _torch_threads(scenario.threads.policy):
        pipeline = problem.pipeline(scenario.threads, scenario.lag, executor, on_boundary, stages=stages)
        pipeline.run()
    return window.block


def _rl_games(problem: Problem, scenario: Scenario, effort: Effort) -> Block:
    """In this process, on the same env object; what rl_games changes globally is put back (``torch_settings_kept``)."""
    from isaac_appo.bench.rl_games_run import MeasuredEnv, Observer
    from isaac_appo.integrations import rl_games

    stages = StageClock(time.process_time)
    window = Window(effort, stages)
    env = MeasuredEnv(problem.env(scenario.threads.physics), problem.rewind, stages)
    observer = Observer(window.tick, stages)
    params = problem.rl_games_params()
    rl_games.train(params, env, ENDLESS, scenario.threads.policy, observer, scenario.compiled)
    return window.block


_RUNNERS: Dict[str, Callable[[Problem, Scenario, Effort], Block]] = {
    "sim": _sim,
    "raw": _raw,
    "collect": _collect,
    "learn": _learn,
    "sync": _train,
    "lockstep": _train,
    "rl_games": _rl_games,
}
