"""Names of scenarios, and one tiny block of each kind."""

from __future__ import annotations

from typing import Iterator

import numpy as np
import pytest
import torch

from isaac_appo.bench.problem import Problem, Threads
from isaac_appo.bench.scenario import default_scenarios, parse_scenario, raw_rollout, run_block
from isaac_appo.bench.window import STAGES, Effort
from isaac_appo.commands.compose import compose

SMALL = [
    "task=Cartpole", "num_envs=8", "train.params.config.horizon_length=4", "train.params.config.minibatch_size=16",
    "train.params.config.mini_epochs=2", "train.params.network.mlp.units=[8]",
]  # fmt: skip


@pytest.fixture(scope="module")
def problem() -> Iterator[Problem]:
    problem = Problem(compose(SMALL, "bench").config)
    yield problem
    problem.close()


@pytest.mark.parametrize(
    ("name", "threads", "lag", "one_core"),
    [
        ("sim_1", Threads(1, 1, 1), 0, True),
        ("sim_4", Threads(4, 4, 4), 0, False),
        ("learn_2", Threads(1, 1, 2), 0, False),
        ("sync_4_1", Threads(4, 1, 1), 0, False),
        ("sync_1_1", Threads(1, 1, 1), 0, True),
        ("lockstep_lag2_1_3", Threads(1, 1, 3), 2, False),
        ("lockstep_lag1_1_1", Threads(1, 1, 1), 1, False),
        ("rl_games_2_1", Threads(2, 1, 1), 0, False),
    ],
)
def test_names_hold_threads_and_lag(name: str, threads: Threads, lag: int, one_core: bool) -> None:
    scenario = parse_scenario(name)
    assert (scenario.threads, scenario.lag, scenario.one_core) == (threads, lag, one_core)
    assert parse_scenario("rl_games_2_1_compiled").compiled and not parse_scenario("rl_games_2_1").compiled


@pytest.mark.parametrize("name", ["sync", "sync_0_1", "lockstep_1_1", "sim_1_1"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="scenario"):
        parse_scenario(name)


@pytest.mark.parametrize("cores", [1, 2, 8])
@pytest.mark.parametrize("quick", [True, False])
def test_the_defaults_have_all_that_the_ratios_need(cores: int, quick: bool) -> None:
    names = default_scenarios(cores, quick)
    scenarios = [parse_scenario(name) for name in names]
    assert len(set(names)) == len(names)
    assert {s.kind for s in scenarios} == {"sim", "raw", "collect", "learn", "sync", "lockstep", "rl_games"}
    for s in scenarios:
        if s.kind == "lockstep":
            assert {f"collect_{s.threads.policy}", f"learn_{s.threads.learner}"} <= set(names)
    assert f"rl_games_{cores}_{cores}" in names and f"sync_{cores}_{cores}" in names
    assert quick or {"rl_games_1_1", "sync_1_1", "lockstep_lag2_1_1"} <= set(names)


@pytest.mark.parametrize(
    ("name", "used"),
    [
        ("sim_1", ()),
        ("raw_1", ()),
        ("sim_2", ()),
        ("raw_2", ()),
        ("collect_1", ("env.step", "act")),
        ("learn_1", ("proximal", "targets", "minibatch")),
        ("sync_1_1", ("env.step", "act", "targets", "minibatch")),
        ("lockstep_lag1_1_1", ("env.step", "act", "proximal", "targets", "minibatch")),
        ("lockstep_lag2_1_1", ("env.step", "act", "proximal", "targets", "minibatch")),
        ("rl_games_1_1", ("env.step", "act", "targets", "minibatch")),
    ],
)
def test_a_block_of_each_kind(problem: Problem, name: str, used: tuple[str, ...]) -> None:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    block = run_block(problem, parse_scenario(name), Effort(1, 2))
    assert block.updates == 2 and block.update_s > 0
    if used:
        assert block.stages is not None and set(block.stages) == set(STAGES)
        assert {stage for stage, s in block.stages.items() if s > 0} - {"other", "proximal"} == set(used) - {"proximal"}
        assert sum(block.stages.values()) == pytest.approx(block.load.cpu_s / 2, rel=0.2)
    assert (torch.get_num_threads(), torch.get_float32_matmul_precision()) == (threads, precision)


def test_a_phase_alone_does_nothing_of_the_other(problem: Problem) -> None:
    collect = run_block(problem, parse_scenario("collect_1"), Effort(1, 2)).stages
    learn = run_block(problem, parse_scenario("learn_1"), Effort(1, 2)).stages
    assert collect is not None and collect["minibatch"] == collect["targets"] == 0
    assert learn is not None and learn["env.step"] == learn["act"] == 0


def test_every_block_starts_from_the_same_state(problem: Problem) -> None:
    start = problem.start
    assert start is not None
    pipeline = problem.pipeline(Threads(1, 1, 1), lag=0, executor="inline")
    state = pipeline.workers[0].collector.state_dict()
    assert all(torch.equal(state["env"][key], value) for key, value in start["env"].items())
    assert state["global_step"] == start["global_step"] > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_raw_physics_does_what_the_environment_did(problem: Problem, threads: int) -> None:
    tape, env = problem.tape(), problem.env(1)
    step, engine = raw_rollout(problem, threads), problem.env(threads).engine
    step(0)
    raw = engine._rollout.numpy().copy()  # type: ignore[attr-defined]
    problem.rewind(env)
    env.step(problem.actions()[0])
    ended = (env.terminated | env.truncated).numpy()
    after = env.engine.state_dict()["state"].numpy()
    assert np.array_equal(tape[0][1], env.engine.state_dict()["control"].numpy())
    fresh = env.task.wp["fresh"].numpy().astype(bool)
    assert not ended.all() and np.array_equal(raw[~fresh, -1], after[~fresh])
    step(1)
    raw = engine._rollout.numpy()  # type: ignore[attr-defined]
    assert not np.array_equal(raw[~fresh, -1], after[~fresh])


def test_rl_games_needs_a_batch_that_divides() -> None:
    sizes = ["num_envs=31", "train.params.config.horizon_length=1"]
    problem = Problem(compose([*SMALL, *sizes], "bench").config)
    assert problem.learner.minibatches == 2  # of 16, one row padded
    with pytest.raises(ValueError, match="divides 31 rows; 16 does not"):
        problem.rl_games_params()
