from __future__ import annotations

import gc
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List

import pytest
import torch
from torch import Tensor

from isaac_appo.env.task_env import TaskEnv, make_env
from isaac_appo.sim.engine import EngineError

Make = Callable[..., TaskEnv]


@pytest.fixture()
def make() -> Iterator[Make]:
    """make_env for Cartpole unless another task is named; the envs are closed afterwards."""
    made: List[TaskEnv] = []

    def build(task: str = "Cartpole", num_envs: int = 4, seed: int = 0, stagger: bool = False, **cfg: Any) -> TaskEnv:
        made.append(make_env(task, cfg, num_envs=num_envs, seed=seed, stagger=stagger))
        return made[-1]

    yield build
    for env in made:
        env.close()


def _drive(env: TaskEnv, steps: int, seed: int) -> Dict[str, Tensor]:
    """Act at random; the same actions for the same seed. Returns all that the steps gave and the state at the end."""
    generator = torch.Generator().manual_seed(seed)
    rows: List[List[Tensor]] = []
    for _ in range(steps):
        actions = torch.randn(env.num_envs, env.num_actions, generator=generator)
        rows.append([value.clone() for value in (*env.step(actions), env.invalid)])
    names = ("obs", "reward", "terminated", "truncated", "invalid")
    given = {name: torch.stack(values) for name, values in zip(names, zip(*rows))}
    return {**given, **{f"end.{key}": value for key, value in env.state_dict().items()}}


def _equal(a: Dict[str, Tensor], b: Dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[key], b[key]) for key in a)


def _push_until(env: TaskEnv, row: int, sign: float) -> int:
    """Push every cart to one side until `row` terminates; returns the number of steps."""
    for step in range(1, 200):
        if env.step(torch.full((env.num_envs, 1), sign))[2][row]:
            return step
    raise AssertionError("no termination")


@pytest.mark.parametrize("num_envs", [1, 7, 64])
def test_any_number_of_envs_steps(num_envs: int, make: Make) -> None:
    for task, obs, actions in (("Cartpole", 4, 1), ("Ant", 60, 8)):
        env = make(task, num_envs)
        assert env.reset().shape == (num_envs, obs)
        given = env.step(torch.zeros(num_envs, actions))
        assert [tuple(value.shape) for value in given] == [(num_envs, obs), (num_envs,), (num_envs,), (num_envs,)]
        assert [value.dtype for value in given] == [torch.float32, torch.float32, torch.bool, torch.bool]


def test_the_terminal_observation_is_true_and_the_next_row_is_dead(make: Make) -> None:
    env, other = make(), make()
    for each, action in ((env, 1.0), (other, -1.0)):
        each.reset()
        _push_until(each, 0, 1.0)
        obs = each.obs[0]
        assert abs(obs[0]) > 3.0 or abs(obs[2]) > 1.5707
        assert each.reward[0] == -2.0
        _, reward, terminated, truncated = each.step(torch.full((4, 1), action))
        assert (reward[0], terminated[0], truncated[0]) == (0.0, False, False)
        assert each.progress[0] == 0
        assert abs(each.obs[0, [0, 2]]).max() <= 0.1
        assert abs(each.obs[0, [1, 3]]).max() <= 0.25
    assert torch.equal(env.obs[0], other.obs[0])  # the action of the dead row acts on nothing
    env.step(torch.ones(4, 1))
    assert env.reward[0] > 0.9
    assert env.progress[0] == 1


def test_an_episode_ends_by_time_after_length_minus_one_steps(make: Make) -> None:
    env = make(episodeLength=6)
    env.reset()
    ends = []
    for _ in range(12):
        _, reward, terminated, truncated = env.step(torch.zeros(4, 1))
        ends.append(bool(truncated[0]))
        assert truncated.all() == truncated.any()
        assert not terminated.any()
        if truncated[0]:
            assert reward[0] > 0.9  # the last step of an episode is a live one
    # five live steps, then a dead row and five live ones
    assert ends == [False] * 4 + [True] + [False] * 5 + [True] + [False]


def test_terminated_wins_over_truncated(make: Make) -> None:
    free = make()
    free.reset()
    steps = _push_until(free, 0, 1.0)
    assert not free.truncated.any()
    tight = make(episodeLength=steps + 1)
    tight.reset()
    _push_until(tight, 0, 1.0)
    assert tight.progress[0] == steps == tight.max_episode_length - 1
    assert not (tight.terminated & tight.truncated).any()


def test_stagger_spreads_the_first_ages_evenly_and_only_those(make: Make) -> None:
    env = make(num_envs=5000, seed=1, stagger=True)
    env.reset()
    ages = env.progress.clone()
    counts = torch.histc(ages.float(), bins=10, min=0, max=500)
    assert ages.min() >= 0
    assert ages.max() < 500
    assert (counts - 500).abs().max() < 5 * (5000 * 0.1 * 0.9) ** 0.5  # five standard deviations
    same, other = make(num_envs=5000, seed=1, stagger=True), make(num_envs=5000, seed=2, stagger=True)
    same.reset()
    other.reset()
    assert torch.equal(ages, same.progress)
    assert not torch.equal(ages, other.progress)
    env.step(torch.zeros(5000, 1))
    assert torch.equal(env.truncated, ages >= 498)
    env.reset()
    assert not env.progress.any()


def test_reset_starts_all_anew_and_differently_each_time(make: Make) -> None:
    env = make()
    first = env.reset().clone()
    _drive(env, 5, seed=0)
    second = env.reset().clone()
    assert first.ne(second).all()
    assert not env.terminated.any()
    assert not env.reward.any()
    assert make(seed=1).reset().ne(first).all()
    assert torch.equal(make().reset(), first)
    assert torch.equal(make(num_envs=9).reset()[:4], first)  # an env's draws do not depend on how many others there are


@pytest.mark.parametrize("where", ["physics", "action", "obs", "reward"])
def test_a_broken_row_is_quarantined_and_started_again(where: str, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    clean, hurt = make("Ant"), make("Ant")
    for env in (clean, hurt):
        env.reset()
        _drive(env, 3, seed=0)
    actions = torch.zeros(4, 8)
    clean.step(actions)
    if where == "physics":
        hurt.engine.root_quat[2] = float("nan")
        hurt.engine.reset(torch.arange(4) == 2)
    elif where == "action":
        actions[2, 0] = float("nan")
    else:
        observe = hurt.task.observe

        def poisoned() -> None:
            observe()
            (hurt.obs[2, 7:8] if where == "obs" else hurt.reward[2:3]).fill_(float("inf"))

        monkeypatch.setattr(hurt.task, "observe", poisoned)
    obs, reward, terminated, truncated = hurt.step(actions)
    monkeypatch.undo()
    assert hurt.invalid.tolist() == [False, False, True, False]
    assert not obs[2].any()
    assert (reward[2], terminated[2], truncated[2]) == (0.0, True, False)
    others = [0, 1, 3]
    assert torch.equal(obs[others], clean.obs[others])
    assert torch.equal(reward[others], clean.reward[others])
    hurt.step(torch.zeros(4, 8))
    assert not hurt.invalid.any()
    assert hurt.progress.tolist() == [5, 5, 0, 5]
    torch.testing.assert_close(hurt.obs[2, 0], torch.tensor(0.44))


@pytest.mark.parametrize("task", ["Cartpole", "Ant"])
def test_a_saved_env_continues_bit_for_bit(task: str, make: Make) -> None:
    first = make(task, 7, seed=3, stagger=True, episodeLength=60)
    first.reset()
    _drive(first, 30, seed=0)
    saved = first.state_dict()
    straight = _drive(first, 40, seed=1)
    assert (straight["terminated"] | straight["truncated"]).any()  # the comparison spans resets
    _drive(first, 5, seed=2)
    first.load_state_dict(saved)
    assert _equal(straight, _drive(first, 40, seed=1))
    fresh = make(task, 7, seed=3, stagger=True, episodeLength=60)
    fresh.load_state_dict(saved)
    assert _equal(straight, _drive(fresh, 40, seed=1))
    assert not _equal(straight, _drive(fresh, 40, seed=1))


def test_a_saved_state_of_another_env_is_refused(make: Make) -> None:
    saved = make(num_envs=3).state_dict()
    with pytest.raises(EngineError, match="does not fit task Cartpole, N=4: invalid, obs"):
        make().load_state_dict(saved)
    with pytest.raises(EngineError, match=r"does not fit task Ant, N=4: task\.last_xy"):
        make("Ant").load_state_dict({**make("Ant").state_dict(), **{"task.last_xy": torch.zeros(3, 2)}})


def test_the_same_seed_gives_the_same_run(make: Make) -> None:
    def run(seed: int) -> Dict[str, Tensor]:
        env = make(num_envs=16, seed=seed)
        env.reset()
        return _drive(env, 60, seed=0)

    assert _equal(run(1), run(1))
    assert not _equal(run(1), run(2))


def test_observations_and_actions_are_clipped(make: Make) -> None:
    env, full = make(clipObservations=0.05), make()
    assert env.reset().abs().max() == torch.tensor(0.05)
    full.reset()
    env.step(torch.full((4, 1), 7.0))
    full.step(torch.ones(4, 1))
    assert torch.equal(env.obs, full.obs.clamp(-0.05, 0.05))
    assert torch.equal(env.reward, full.reward)  # the reward is that of the unclipped state


def test_steps_reuse_their_tensors_and_never_wait_for_a_value(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    env = make("Ant", 16)
    env.reset()
    actions = torch.zeros(16, 8)
    pointers = [value.data_ptr() for value in env.step(actions)]

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("host read in a step")

    for name in ("item", "tolist", "numpy", "cpu", "nonzero", "__bool__"):
        monkeypatch.setattr(Tensor, name, refuse)
    gc.collect()
    before = sum(issubclass(type(thing), Tensor) for thing in gc.get_objects())
    gc.disable()
    try:
        for _ in range(50):
            given = env.step(actions)
    finally:
        gc.enable()
    monkeypatch.undo()
    assert sum(issubclass(type(thing), Tensor) for thing in gc.get_objects()) <= before
    assert [value.data_ptr() for value in given] == pointers


def test_a_step_before_the_first_reset_is_refused(make: Make) -> None:
    with pytest.raises(EngineError, match="call reset"):
        make().step(torch.zeros(4, 1))


def test_the_builder_hands_its_settings_to_the_engine(tmp_path: Path) -> None:
    env = make_env(
        "Ant", {}, sim_dt=0.02, substeps=4, num_envs=2, seed=5, threads=2, device="cpu", log_dir=str(tmp_path)
    )
    spec = env.engine.spec
    assert (spec.control_dt, spec.substeps, spec.num_envs, spec.threads) == (0.02, 4, 2, 2)
    assert spec.sites == ("foot_1", "foot_2", "foot_3", "foot_4")
    assert spec.log_dir == str(tmp_path)
    env.reset()
    env.check()
    env.close()
