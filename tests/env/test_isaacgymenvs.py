"""Each auto-reset convention with known rows: live rows, ends, bootstraps, episodes, and nothing across episodes."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Tuple

import numpy as np
import pytest
import torch

from isaac_appo.env.isaacgymenvs import VecTaskEnv, autoreset_of
from isaac_appo.env.vec_task import plain
from isaac_appo.rollout.collector import Collector
from isaac_appo.rollout.slab import DEAD, LIVE, NAN
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.schedule.program import Lockstep
from isaac_appo.sim.engine import EngineError
from tests.env.chain import collect, known_model, make_task, targets, tasks  # noqa: F401 - a fixture
from tests.helpers import learner_settings, pipeline_settings


class Expected(NamedTuple):
    """Ten rows of two envs: env 0 runs into its time-out, env 1 falls."""

    autoreset: str
    obs: Tuple[List[int], List[int]]
    dead: Tuple[List[int], List[int]]
    truncated: List[int]
    terminated: List[int]
    targets: Dict[int, float]
    episodes: List[Tuple[float, int]]


CONVENTIONS = {
    "Ant": Expected(
        "next_step",
        ([0, 1, 2, 3, 4, 0, 1, 2, 3, 4, 0], [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2]),
        ([4, 9], [3, 7]),
        [3, 8],
        [2, 6],
        {0: 45.0, 3: 15.0, 5: 45.0, 8: 15.0},  # 10 and V(4) = 5
        [(30.0, 3), (40.0, 4), (30.0, 3), (40.0, 4)],
    ),
    "ShadowHand": Expected(
        "next_step_pre",
        ([1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3], [1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]),
        ([3, 7], [2, 5, 8]),
        [2, 6],
        [1, 4, 7],
        {0: 35.0, 2: 15.0, 4: 35.0, 6: 15.0},
        [(20.0, 2), (30.0, 3), (30.0, 3), (40.0, 4), (30.0, 3)],  # the masked row is a step of the new episode
    ),
    "AnymalTerrain": Expected(
        "same_step",
        ([1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3], [1, 2, 0, 1, 2, 0, 1, 2, 0, 1, 2]),
        ([], []),
        [2, 6],
        [1, 4, 7],
        {0: 34.0, 2: 14.0, 3: 44.0, 6: 14.0},  # V(4) is lost with the observation: 10 and V(3) = 4
        [(20.0, 2), (30.0, 3), (30.0, 3), (40.0, 4), (30.0, 3)],
    ),
    "HumanoidAMP": Expected(
        "same_step",
        ([0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2], [0, 1, 2, 0, 1, 2, 0, 1, 2, 0, 1]),
        ([], []),
        [3, 7],
        [2, 5, 8],
        {0: 45.0, 3: 15.0, 4: 45.0, 7: 15.0},
        [(30.0, 3), (40.0, 4), (30.0, 3), (40.0, 4), (30.0, 3)],
    ),
}


def env_of(cls: Any, autoreset: str = "auto", **settings: Any) -> VecTaskEnv:
    return VecTaskEnv(make_task(cls, **settings), autoreset)


def rows(mask: torch.Tensor) -> List[int]:
    return torch.nonzero(mask).flatten().tolist()


@pytest.mark.parametrize("name", CONVENTIONS)
def test_rows_of_each_convention(tasks: Dict[str, Any], name: str) -> None:  # noqa: F811
    expected, env = CONVENTIONS[name], env_of(tasks[name])
    slab, _ = collect(env)
    assert env.autoreset == expected.autoreset
    for index in (0, 1):
        assert slab.obs_TNO[:, index, 0].tolist() == expected.obs[index]
        assert rows(slab.status_TN[:, index] == DEAD) == expected.dead[index]
    assert rows(slab.truncated_TN[:, 0]) == expected.truncated and rows(slab.terminated_TN[:, 1]) == expected.terminated
    assert not slab.truncated_TN[:, 1].any() and not slab.terminated_TN[:, 0].any()
    assert int((slab.status_TN == LIVE).sum()) == 20 - sum(map(len, expected.dead))
    assert slab.finished_episodes() == expected.episodes
    pays = 0.0 if name == "Ant" else 10.0  # the step that Ant throws away pays nothing
    assert slab.rewards_TN[slab.status_TN == DEAD].tolist() == [pays] * sum(map(len, expected.dead))


def test_an_episode_that_ended_before_the_first_row_starts_after_it(tasks: Dict[str, Any]) -> None:  # noqa: F811
    slab, _ = collect(env_of(tasks["ShadowHand"], fallAt=1), horizon=3)
    assert slab.status_TN[:, 1].tolist() == [DEAD] * 3  # it falls in every step, the one that reset() takes included
    assert slab.status_TN[:, 0].tolist() == [LIVE] * 3


@pytest.mark.parametrize("stale", [False, True])
@pytest.mark.parametrize("name", CONVENTIONS)
def test_bootstrap_of_each_convention(tasks: Dict[str, Any], name: str, stale: bool) -> None:  # noqa: F811
    expected, env = CONVENTIONS[name], env_of(tasks[name])
    slab, _ = collect(env)
    returns = targets(slab, stale)
    assert {t: float(returns[t, 0]) for t in expected.targets} == expected.targets
    assert [float(returns[t, 1]) for t in expected.terminated] == [10.0] * len(expected.terminated)
    # nothing crosses the end of an episode: another reward after it leaves what came before as it was
    end = expected.truncated[0]
    slab.rewards_TN[end + 1 :, 0] += 1000.0
    assert torch.equal(targets(slab, stale)[: end + 1, 0], returns[: end + 1, 0])


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("name", CONVENTIONS)
def test_rows_are_conserved(tasks: Dict[str, Any], name: str, lag: int) -> None:  # noqa: F811
    env = env_of(tasks[name], num_envs=4)
    learner = learner_settings(epochs=1, minibatch_size=20, minibatches=2)
    program = Lockstep(horizon=10, epochs=1, minibatches=2, num_updates=3, lag=lag)
    pipeline = Pipeline(
        [env], known_model, program, pipeline_settings(executor="threads" if lag else "inline"), learner
    )
    pipeline.run()
    totals = pipeline.ledger.totals()
    # 40 rows after calibration of two envs of each kind; the dead ones by period of the episodes
    periods = {"Ant": (5, 4), "ShadowHand": (4, 3)}.get(name)
    age = {"Ant": (4, 3), "ShadowHand": (3, 2)}.get(name)
    dead = 0
    if periods and age:
        dead = 2 * sum(1 for p, a in zip(periods, age) for t in range(10, 40) if t % p == a)
    assert totals["masked_dead"] == dead and totals["trained"] == 120 - dead
    assert totals["collected"] == 160 and totals["dropped_calibration"] == 40


def test_live_buffers_are_copied(tasks: Dict[str, Any]) -> None:  # noqa: F811
    env = env_of(tasks["Ant"], asymmetric=True)
    env.reset()
    returned = env.step(torch.zeros(2, 1))
    pointers = [tensor.data_ptr() for tensor in (*returned, env.states)]
    env.task.rew_buf[:] = -1.0
    env.task.reset_buf[:] = 1
    assert env.reward.tolist() == [10.0, 10.0] and not env.terminated.any()
    assert env.states.tolist() == [[100.0, 0.0, 1.0], [100.0, 1.0, 1.0]]
    assert [tensor.data_ptr() for tensor in (*env.step(torch.zeros(2, 1)), env.states)] == pointers


def test_a_broken_row_is_reset_and_kept_out(tasks: Dict[str, Any]) -> None:  # noqa: F811
    class Breaks(tasks["Ant"]):  # type: ignore[misc,name-defined]
        def simulate(self) -> None:
            super().simulate()
            self.x[0] = float("nan") if self.x[0] == 2.0 else self.x[0]

    slab, _ = collect(env_of(Breaks))
    assert slab.status_TN[:6, 0].tolist() == [LIVE, NAN, DEAD, LIVE, NAN, DEAD]
    assert slab.obs_TNO[2, 0].tolist() == [0.0, 0.0] and bool(slab.terminated_TN[1, 0])
    assert torch.isfinite(slab.obs_TNO).all() and torch.isfinite(slab.rewards_TN).all()


def test_the_convention_is_found_by_class_base_or_word(tasks: Dict[str, Any]) -> None:  # noqa: F811
    class MyHand(tasks["ShadowHand"]):  # type: ignore[misc,name-defined]
        pass

    assert autoreset_of(make_task(MyHand)) == ("next_step_pre", "what class ShadowHand does")
    mine = make_task(tasks["Mine"])
    assert autoreset_of(mine)[0] == "next_step" and "assumed" in autoreset_of(mine)[1]
    assert autoreset_of(mine, "same_step") == ("same_step", "as stated")
    with pytest.raises(EngineError, match="no such convention"):
        autoreset_of(mine, "sometimes")
    assert "rl_games" in env_of(tasks["AnymalTerrain"]).describe()
    assert "manual, reset by the adapter" in env_of(tasks["HumanoidAMP"]).describe()


def test_a_wrong_assumption_is_noticed(tasks: Dict[str, Any]) -> None:  # noqa: F811
    for stated, others in (("auto", "same_step"), ("same_step", None)):
        env = env_of(tasks["Mine"], stated)
        collect(env, horizon=30)
        if others is None:
            env.check()
        else:
            with pytest.raises(EngineError, match=r"Use env\.autoreset=same_step"):
                env.check()
    wrong = env_of(tasks["Ant"], "same_step")
    collect(wrong, horizon=30)
    with pytest.raises(EngineError, match=r"Use env\.autoreset=next_step"):
        wrong.check()


def test_a_resumed_run_starts_new_episodes_and_keeps_the_env_state(tasks: Dict[str, Any]) -> None:  # noqa: F811
    env = env_of(tasks["AnymalTerrain"])
    _, collector = collect(env, horizon=8)
    env.set_train_info(640)
    saved = collector.state_dict()
    assert saved["env"] == {"env_state": {"curriculum": 10}}
    fresh = env_of(tasks["AnymalTerrain"])
    _, resumed = collect(fresh, horizon=2)
    resumed.load_state_dict(saved)
    assert fresh.task.curriculum == 10 and resumed.global_step == 8
    assert fresh.obs.tolist() == [[1.0, 0.0], [1.0, 1.0]]


def test_manual_and_unreadable_envs_are_refused(tasks: Dict[str, Any]) -> None:  # noqa: F811
    env = env_of(tasks["Ant"])
    env.autoreset = "manual"
    with pytest.raises(ValueError, match="autoreset='manual' of VecTaskEnv"):
        Collector(env, known_model(), None, [], 1, True)  # type: ignore[arg-type]
    with pytest.raises(EngineError, match="2 agents"):
        env_of(tasks["Ant"], numAgents=2)

    class Camera(tasks["Ant"]):  # type: ignore[misc,name-defined]
        def _observations(self) -> Dict[str, Any]:
            return {"obs": {"camera": self.obs_buf}}

    with pytest.raises(EngineError, match="observation dict"):
        env_of(Camera).reset()


def test_what_a_checkpoint_takes_of_an_env_state() -> None:
    state = plain({"a": np.float64(1.5), "b": (np.arange(2), [True, None]), 3: torch.ones(1)}, "state")
    assert type(state["a"]) is float and state["b"][0].tolist() == [0, 1] and state["b"][1] == [True, None]
    assert state[3].tolist() == [1.0]
    with pytest.raises(EngineError, match=r"state\['q'\] is a object"):
        plain({"q": object()}, "state")
