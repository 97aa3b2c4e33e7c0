from __future__ import annotations

import dataclasses
import itertools
import math
from typing import Any, Dict, List

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isaac_appo.build import build_program
from isaac_appo.commands.compose import compose
from isaac_appo.schedule.program import Free
from isaac_appo.schedule.throttle import ActorThrottle, AsyncActorLearnerConfig, lag_within

DEFAULTS: Dict[str, Any] = {
    "num_actors": 4,
    "num_steps": 256,
    "total_env_steps": 200_000,
    "broadcast_every": 1,
    "max_lead_steps": 0,
    "gamma": 0.99,
    "gae_lambda": 0.95,
    "use_vtrace": False,
    "vtrace_rho_bar": 1.0,
    "vtrace_c_bar": 1.0,
    "seed": 0,
}


def faults(**changes: Any) -> List[str]:
    with pytest.raises(ValueError) as error:
        AsyncActorLearnerConfig(**changes).validate()
    return str(error.value).splitlines()


# ------------------------------------------------------------------------------------------------------------- throttle


@pytest.mark.parametrize(
    ("sent", "broadcast", "pauses"), [(511, 0, False), (512, 0, True), (512, 1, False), (767, 1, False), (768, 1, True)]
)
def test_the_default_throttle_closes_at_its_boundaries(sent: int, broadcast: int, pauses: bool) -> None:
    throttle = AsyncActorLearnerConfig().actor_throttle()
    assert throttle == (256, 512)
    assert throttle.should_pause(sent, broadcast) is pauses


def test_a_disabled_throttle_never_closes() -> None:
    throttle = ActorThrottle.disabled()
    assert throttle == (0, 0)
    assert not throttle.should_pause(10**12, 0)
    assert throttle.broadcasts_needed(10**12) == 0


def test_broadcasts_needed_is_where_the_pause_ends() -> None:
    for per_broadcast, lead, sent in itertools.product(range(1, 7), range(0, 14), range(0, 40)):
        throttle = ActorThrottle(per_broadcast, lead)
        open_at = [b for b in range(0, 50) if not throttle.should_pause(sent, b)]
        assert throttle.broadcasts_needed(sent) == open_at[0]
        assert open_at == list(range(open_at[0], 50))  # once open, it stays open


@given(horizon=st.integers(1, 6), every=st.integers(1, 4), extra=st.integers(0, 15))
def test_the_lead_bounds_the_lag_and_the_bound_is_reached(horizon: int, every: int, extra: int) -> None:
    lead = every * horizon + extra
    throttle = ActorThrottle(every * horizon, lead)
    lags = [sent // horizon - every * throttle.broadcasts_needed(sent) for sent in range(60 * horizon)]
    assert max(lags) == lag_within(lead, horizon)


# ------------------------------------------------------------------------------------------------------- configuration


def test_fields_and_defaults() -> None:
    config = AsyncActorLearnerConfig()
    assert dataclasses.asdict(config) == DEFAULTS
    assert list(dataclasses.asdict(config)) == list(DEFAULTS)
    config.validate()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 1  # type: ignore[misc]


def test_derived_values() -> None:
    assert AsyncActorLearnerConfig().num_updates() == 195  # 200,000 // 1,024
    assert AsyncActorLearnerConfig(total_env_steps=1024).num_updates() == 1
    assert AsyncActorLearnerConfig(total_env_steps=2047).num_updates() == 1
    assert AsyncActorLearnerConfig().effective_max_lead_steps() == 512
    assert AsyncActorLearnerConfig(broadcast_every=3).effective_max_lead_steps() == 1536
    assert AsyncActorLearnerConfig(max_lead_steps=300).effective_max_lead_steps() == 300
    assert AsyncActorLearnerConfig(broadcast_every=3, max_lead_steps=800).actor_throttle() == (768, 800)


def test_an_invalid_configuration_has_no_derived_values() -> None:
    for name in ("num_updates", "actor_throttle", "to_overrides"):
        with pytest.raises(ValueError, match="num_steps must be >= 1"):
            getattr(AsyncActorLearnerConfig(num_steps=0), name)()


def test_the_builder_methods_change_one_field_of_a_copy() -> None:
    config = AsyncActorLearnerConfig(seed=5)
    changed = config.with_vtrace(True).with_rho_bar(2.0).with_c_bar(1.5)
    expected = {**DEFAULTS, "seed": 5, "use_vtrace": True, "vtrace_rho_bar": 2.0, "vtrace_c_bar": 1.5}
    assert dataclasses.asdict(changed) == expected
    assert dataclasses.asdict(config) == {**DEFAULTS, "seed": 5}
    assert changed.with_vtrace(False).use_vtrace is False


def test_actor_seeds() -> None:
    config = AsyncActorLearnerConfig(seed=10)
    assert [config.actor_seed(i) for i in range(4)] == [11, 12, 13, 14]
    for actor in (-1, 4):
        with pytest.raises(ValueError, match=rf"actor = {actor}: must be in 0..3"):
            config.actor_seed(actor)


@pytest.mark.parametrize("name", ["num_actors", "num_steps", "total_env_steps", "broadcast_every"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, "4", None, math.nan])
def test_counts_are_whole_and_at_least_one(name: str, value: Any) -> None:
    [text] = faults(**{name: value})
    assert text == f"{name} must be >= 1 and whole, got {value!r}. Use {DEFAULTS[name]}"


@pytest.mark.parametrize("name", ["gamma", "gae_lambda"])
@pytest.mark.parametrize("use_vtrace", [False, True])
@pytest.mark.parametrize("value", [0.0, -0.1, 1.0001, math.nan, math.inf, "1", True])
def test_discount_and_lambda_are_in_their_range(name: str, use_vtrace: bool, value: Any) -> None:
    [text] = faults(**{name: value, "use_vtrace": use_vtrace})
    assert text == f"{name} must be in (0, 1], got {value!r}. Use {DEFAULTS[name]}"
    AsyncActorLearnerConfig(**{name: 1}).validate()


@pytest.mark.parametrize("name", ["vtrace_rho_bar", "vtrace_c_bar"])
@pytest.mark.parametrize("use_vtrace", [False, True])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None])
def test_caps_are_positive_and_finite_even_where_unused(name: str, use_vtrace: bool, value: Any) -> None:
    [text] = faults(**{name: value, "use_vtrace": use_vtrace})
    assert text == f"{name} must be > 0 and finite, got {value!r}. Use 1.0"


def test_rho_bar_is_at_least_c_bar() -> None:
    [text] = faults(vtrace_rho_bar=0.5)
    assert text == "vtrace_rho_bar must be >= vtrace_c_bar = 1.0, got 0.5. Use 1.0"
    AsyncActorLearnerConfig(vtrace_rho_bar=0.5, vtrace_c_bar=0.5).validate()


def test_the_budget_covers_an_update() -> None:
    [text] = faults(total_env_steps=1023)
    rule = "total_env_steps must cover one update, num_steps * num_actors = 1024"
    assert text == f"{rule}, got 1023. Use 1024 or more"


def test_the_lead_covers_a_broadcast_cycle() -> None:
    [text] = faults(broadcast_every=2, max_lead_steps=511)
    rule = "max_lead_steps must be 0 or >= broadcast_every * num_steps = 512"
    assert text == f"{rule}, got 511: the learner's fill loop deadlocks. Use 1024"
    AsyncActorLearnerConfig(broadcast_every=2, max_lead_steps=512).validate()
    [text] = faults(max_lead_steps=-1)
    assert text.startswith("max_lead_steps must be >= 0 and whole, got -1.")


@pytest.mark.parametrize("seed", [-1, 2**64, 0.5, False])
def test_the_seed_has_64_bits(seed: Any) -> None:
    [text] = faults(seed=seed)
    assert text == f"seed must be in [0, 2**64) and whole, got {seed!r}. Use 0"
    AsyncActorLearnerConfig(seed=2**64 - 1).validate()


def test_every_fault_is_told_at_once() -> None:
    texts = faults(num_actors=0, gamma=math.nan, use_vtrace=1, max_lead_steps=7, vtrace_rho_bar=0.1, seed=-1)
    assert [text.split()[0] for text in texts] == [
        "num_actors",
        "seed",
        "gamma",
        "use_vtrace",
        "max_lead_steps",
        "vtrace_rho_bar",
    ]


# ----------------------------------------------------------------------------------------------------------- overrides


def test_overrides_of_the_default() -> None:
    assert AsyncActorLearnerConfig().to_overrides() == [
        "num_envs=4",
        "max_iterations=195",
        "seed=0",
        "train.params.config.horizon_length=256",
        "train.params.config.gamma=0.99",
        "train.params.config.tau=0.95",
        "schedule=free",
        "schedule.num_workers=4",
        "schedule.broadcast_every=1",
        "schedule.max_lead_steps=512",
        "schedule.max_policy_lag=1",
        "advantage=gae",
    ]


def test_the_trainer_reads_the_overrides_as_the_same_run() -> None:
    ours = AsyncActorLearnerConfig(3, 32, 10_000, 2, 200, 0.98, 0.9, True, 2.0, 1.5, 11)
    composed = compose(["task=Cartpole", *ours.to_overrides()])
    config = composed.config
    assert (config.num_envs, config.max_iterations, config.seed) == (3, 104, 11)
    assert (config.ppo.horizon_length, config.ppo.gamma) == (32, 0.98)
    assert config.ppo.tau == 1.0  # V-trace has no lambda there
    assert (config.advantage.name, config.advantage.rho_bar, config.advantage.c_bar) == ("vtrace", 2.0, 1.5)
    program = build_program(config, 1)
    assert isinstance(program, Free) and program.throttle
    assert (program.num_workers, program.lead, program.broadcast_every) == (3, 200, 2)
    assert program.max_policy_lag == 6  # a lead of 200 steps reaches into the 7th slab of 32
    assert not [text for text in composed.warnings if "no effect" in text]


def test_gae_keeps_its_lambda_and_names_no_caps() -> None:
    words = AsyncActorLearnerConfig(gae_lambda=0.9).to_overrides()
    assert "train.params.config.tau=0.9" in words
    assert not [word for word in words if "bar" in word]
    composed = compose(["task=Cartpole", *words])
    assert composed.config.advantage.name == "gae"


def test_a_seed_that_the_trainer_cannot_take_is_refused() -> None:
    with pytest.raises(ValueError, match=r"seed = 4294967301: this trainer takes seeds below 2\*\*31. Use 5"):
        AsyncActorLearnerConfig(seed=2**32 + 5).to_overrides()
