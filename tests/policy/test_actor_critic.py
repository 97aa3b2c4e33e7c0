"""The actor-critic is rl_games' own network with rl_games' keys."""

from __future__ import annotations

import copy
import io
from contextlib import redirect_stdout

import torch

from tests.helpers import NETWORK, make_model


def test_state_dict_keys_and_outputs_are_those_of_rl_games_model() -> None:
    from rl_games.algos_torch.model_builder import ModelBuilder

    params = {"model": {"name": "continuous_a2c_logstd"}, "network": copy.deepcopy(NETWORK)}
    with redirect_stdout(io.StringIO()):
        theirs = ModelBuilder().load(params).build(
            {"actions_num": 2, "input_shape": (5,), "num_seqs": 1, "value_size": 1, "normalize_value": True,
             "normalize_input": True}
        )  # fmt: skip
    ours = make_model(5, 2)
    ours.running_mean_std.update(torch.randn(100, 5) * 3, torch.ones(100))
    ours.value_mean_std.update(torch.randn(100, 1) * 5 + 2, torch.ones(100))
    ours.publish_statistics()
    theirs.load_state_dict(ours.state_dict(), strict=True)
    theirs.eval()
    obs = torch.randn(6, 5)
    with torch.no_grad():
        expected = theirs({"is_train": False, "obs": obs.clone(), "prev_actions": None})
        output = ours(ours.running_mean_std.normalize(obs, torch.empty_like(obs)))
        value = ours.value_mean_std.denormalize(output.value, torch.empty(6))
    assert torch.allclose(output.mu, expected["mus"], atol=1e-6)
    assert torch.allclose(output.log_std.exp(), expected["sigmas"])
    assert torch.allclose(value, expected["values"].squeeze(-1), atol=1e-4)


def test_normalisers_can_be_switched_off() -> None:
    from isaac_appo.policy.actor_critic import ActorCritic

    plain = ActorCritic(NETWORK, 5, 2, normalize_input=False, normalize_value=False)
    assert not any("mean_std" in key for key in plain.state_dict())
    assert len(plain.published_tensors()) == len(list(plain.parameters()))


def test_building_says_nothing_on_the_console(capsys) -> None:  # type: ignore[no-untyped-def]
    make_model(5, 2)
    assert capsys.readouterr().out == ""


def test_mixed_precision_computes_in_bfloat16_and_gives_float32() -> None:
    model, obs = make_model(5, 2), torch.linspace(-2, 2, 35).view(7, 5)
    plain = model(obs)
    model.mixed_precision = True
    half = model(obs)
    for name in plain._fields:
        a, b = getattr(plain, name), getattr(half, name)
        assert b.dtype == torch.float32 and torch.allclose(a, b, atol=0.03)
    assert not torch.equal(plain.mu, half.mu) and torch.equal(half.mu, half.mu.bfloat16().float())
    (half.mu.sum() + half.value.sum()).backward()
    assert all(p.grad is None or p.grad.dtype == torch.float32 for p in model.parameters())
