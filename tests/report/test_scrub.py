from __future__ import annotations

from dataclasses import asdict

import pytest

from isaac_appo.commands.compose import compose
from isaac_appo.report.scrub import HIDDEN, scrub


@pytest.mark.parametrize(
    "name", ["api_key", "apiKey", "API-KEY", "key", "ssh_keys", "hf_token", "PASSWORD", "clientSecret"]
)
def test_a_telling_name_hides_its_value_at_any_depth(name: str) -> None:
    assert scrub({"a": [{name: "x"}], name: {"b": 7}}) == {"a": [{name: HIDDEN}], name: {"b": 7}}
    assert scrub({name: 7}) == {name: HIDDEN} and scrub({name: ""}) == {name: ""}


@pytest.mark.parametrize(
    "value",
    [
        "0123456789abcdef0123456789abcdef01234567",
        "wandb_v1_AbCdEfGhIjKlMnOp12",
        "ghp_abcdefghijklmnop1234",
        "hf_abcdefghijklmnopqrst",
        "sk-abcdefghijklmnop",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc-_",
        "aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3aB3",
        "https://me:hunter2@example.com/x",
        "machine api.wandb.ai login user password hunter2",
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_a_telling_value_is_hidden_whatever_its_name(value: str) -> None:
    assert scrub({"note": value, "list": ["a", value]}) == {"note": HIDDEN, "list": ["a", HIDDEN]}


@pytest.mark.parametrize(
    "value",
    [
        "Ant",
        "runs/Ant/default/s42/checkpoints/ckpt_000012345.pth",
        "Ant_GAE_lag1_lr3e-4_seed42_with_a_bigger_net",
        "https://example.com/x",
        "continuous_a2c_logstd",
        42,
        None,
        1e-3,
    ],
)
def test_what_is_no_secret_stays(value: object) -> None:
    assert scrub({"monkey": value, "keyframes": value}) == {"monkey": value, "keyframes": value}


def test_no_value_of_a_whole_configuration_is_taken_for_a_secret() -> None:
    assert HIDDEN not in str(scrub(asdict(compose(["task=Ant"]).config)))
