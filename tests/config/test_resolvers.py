from __future__ import annotations

import pytest
from omegaconf import OmegaConf

from isaac_appo.config.resolvers import register_resolvers


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${eq:${pipeline},gpu}", True),
        ("${eq:${pipeline},cpu}", False),
        ("${contains:cuda,${device}}", True),
        ("${contains:cpu,${device}}", False),
        ("${if:${checkpoint},True,False}", False),
        ("${if:${device},1,2}", 1),
        ("${resolve_default:4096,${num_envs}}", 4096),
        ("${resolve_default:4096,${given}}", 7),
        ("${resolve_default:Ant,${device}}", "CUDA:0"),
        ("${resolve_default:5,${zero}}", 0),
    ],
)
def test_resolver(text: str, value: object) -> None:
    register_resolvers()
    register_resolvers()
    facts = {"pipeline": "GPU", "device": "CUDA:0", "checkpoint": "", "num_envs": "", "given": 7, "zero": 0}
    result = OmegaConf.create({**facts, "x": text}).x
    assert result == value and type(result) is type(value)
