"""The rules of rl_games' `network:` block, as far as this trainer builds it."""

from __future__ import annotations

from typing import Any, Dict, Iterator

from isaac_appo.config.errors import Finding
from isaac_appo.config.suggest import nearest

_KEYS = ("name", "separate", "space", "mlp", "value_activation", "normalization")
_MLP_KEYS = ("units", "activation", "initializer", "regularizer", "d2rl", "norm_only_first_layer")
_REFUSED = {
    "rnn": "recurrent networks are not supported yet",
    "cnn": "image networks are not supported yet",
    "central_value": "not supported",
    "joint_obs_actions": "not supported",
}


def check_network(network: Dict[str, Any], path: str, critic: bool = False) -> Iterator[Finding]:
    """Yield what is wrong with a `network:` block at `path`; initialisers and activations are rl_games' own to check.

    A `critic` needs no action space, and may say that it is a central value network.
    """
    name = network.get("name", "(missing)")
    if name != "actor_critic":
        yield Finding(f"{path}.name", name, "must be actor_critic", "Use actor_critic")
    for key, reason in _REFUSED.items():
        if network.get(key) and not (critic and key == "central_value"):
            yield Finding(f"{path}.{key}", network[key], reason, "Leave it out")
    yield from _unknown(network, _KEYS + tuple(_REFUSED), path)
    yield from _check_mlp(network.get("mlp"), f"{path}.mlp")
    space = network.get("space")
    if not critic and (not isinstance(space, dict) or "continuous" not in space):
        yield Finding(f"{path}.space", space, "must have a section continuous", "Copy it from cfg/train/AntPPO.yaml")


def _check_mlp(mlp: Any, path: str) -> Iterator[Finding]:
    if not isinstance(mlp, dict):
        yield Finding(path, mlp, "must be a section with units and activation", "Copy it from cfg/train/AntPPO.yaml")
        return
    yield from _unknown(mlp, _MLP_KEYS, path)
    units = mlp.get("units")
    sizes = units if isinstance(units, list) else []
    if not sizes or any(isinstance(size, bool) or not isinstance(size, int) or size < 1 for size in sizes):
        yield Finding(f"{path}.units", units, "must be a list of layer sizes of at least 1", "Use [256, 128, 64]")


def _unknown(section: Dict[str, Any], known: Any, path: str) -> Iterator[Finding]:
    for key, value in section.items():
        if key not in known:
            match = nearest(str(key), known)
            fix = f"Did you mean {path}.{match}?" if match else f"Known here: {', '.join(known)}"
            yield Finding(f"{path}.{key}", value, "unknown key", fix)
