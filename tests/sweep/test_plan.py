from __future__ import annotations

from typing import Any, List

import pytest

from isaac_appo.commands.compose import hydra_loader
from isaac_appo.sweep.plan import Axis, combinations, find_axes, read_options, run_name, sweep_name


def axes(*words: str) -> Any:
    errors: List[object] = []
    with hydra_loader() as loader:
        found, fixed = find_axes(words, loader, errors)
    return {axis.key: list(axis.values) for axis in found}, fixed, errors


def test_hydras_grammar_is_expanded() -> None:
    found, fixed, errors = axes(
        "task=glob(*)", "schedule=glob(*,exclude=sync)", "seed=range(1,4)", "schedule.lag=0,2", "num_envs=8",
        "advantage=choice(gae,vtrace)", "train.params.config.gamma=interval(0.9,1)", "wandb_tags=[a,b]",
    )  # fmt: skip
    assert errors == [] and fixed == ["num_envs=8", "wandb_tags=[a,b]"]
    assert found == {
        "task": ["Ant", "Cartpole"],
        "schedule": ["free", "lockstep"],
        "seed": ["1", "2", "3"],
        "schedule.lag": ["0", "2"],
        "advantage": ["gae", "vtrace"],
        "train.params.config.gamma": [],
    }
    assert axes("seed=[1,2")[2][0].startswith("seed=[1,2: Hydra cannot read it")


def test_combinations_vary_the_last_key_fastest() -> None:
    override: Any = None
    listed = [Axis("a", ("1", "2"), override), Axis("b", ("x", "y"), override)]
    assert [" ".join(c.values()) for c in combinations(listed)] == ["1 x", "1 y", "2 x", "2 y"]


def test_options_of_the_sweep_are_taken_out() -> None:
    errors: List[object] = []
    options, rest = read_options(
        ["seed=1,2", "sweep.jobs=3", "hydra/launcher=submitit_slurm", "hydra.launcher.partition=gpu",
         "hydra.launcher.timeout_min=90", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=7", "num_envs=8"],
        errors,
    )  # fmt: skip
    assert errors == [] and rest == ["seed=1,2", "num_envs=8"]
    assert (options.launcher, options.sweeper, options.jobs) == ("slurm", "optuna", 3)
    assert options.launcher_params == {"partition": "gpu", "timeout_min": 90}
    assert options.search["n_trials"] == 7 and options.search["direction"] == "maximize"
    defaults = read_options(["seed=1,2"], errors)[0]
    assert (defaults.launcher, defaults.sweeper, defaults.jobs) == ("local", "basic", -1)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("sweep.jobs=many", "sweep.jobs = many: must be a whole number"),
        ("sweep.job=1", "sweep.job: unknown. Known: sweep.jobs"),
        ("hydra/launcher=joblib", "hydra/launcher = joblib: must be one of"),
        ("hydra/sweeper=ax", "hydra/sweeper = ax: must be one of basic, optuna"),
        ("hydra.sweeper.trials=3", "hydra.sweeper.trials: unknown. Known:"),
        ("hydra.sweeper.direction=up", "hydra.sweeper.direction = up: must be maximize or minimize"),
    ],
)
def test_a_wrong_option_is_told(word: str, text: str) -> None:
    errors: List[object] = []
    read_options([word], errors)
    assert len(errors) == 1 and str(errors[0]).startswith(text)


def test_a_runs_name_holds_all_but_task_and_seed() -> None:
    swept = {"task": "Ant", "schedule.lag": "2", "advantage": "gae", "seed": "3"}
    assert run_name("mine", swept) == "mine_lag-2_advantage-gae"
    assert run_name("mine", {"task": "Ant", "seed": "3"}) == "mine"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"train.params.network.mlp.units": "[8,8]"}, {"train.params.network.mlp.units": "[8/8]"}),  # plain: the same
        ({"a.x": "1", "b.x": "2"}, {"b.x": "1", "c.x": "2"}),
        ({"k": "v" * 200}, {"k": "v" * 201}),
    ],
)
def test_names_that_are_made_plainer_or_shorter_stay_apart_and_legal(one: Any, other: Any) -> None:
    names = [run_name("mine", one), run_name("mine", other)]
    assert names[0] != names[1] and run_name("mine", one) == names[0]
    assert all(len(name) <= 100 and set(name) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for name in names)


def test_a_sweeps_name_is_the_same_for_the_same_sweep() -> None:
    name = sweep_name(["seed=1,2", "num_envs=8"])
    assert name == sweep_name(["+num_envs=8", "seed=1,2", "max_iterations=50", "sweep.jobs=2", "report.plot=False"])
    assert name != sweep_name(["seed=1,2", "num_envs=16"])
