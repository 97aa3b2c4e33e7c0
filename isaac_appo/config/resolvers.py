"""The OmegaConf resolvers that IsaacGymEnvs' YAML files use, so that such a file composes here unchanged."""

from __future__ import annotations

from typing import Any

from omegaconf import OmegaConf


def equal(left: Any, right: Any) -> bool:
    """True when both read the same, upper and lower case alike."""
    return str(left).lower() == str(right).lower()


def contains(part: Any, whole: Any) -> bool:
    """True when `part` occurs in `whole`, upper and lower case alike."""
    return str(part).lower() in str(whole).lower()


def choose(condition: Any, then: Any, otherwise: Any) -> Any:
    """`then` when the condition holds, else `otherwise`."""
    return then if condition else otherwise


def resolve_default(default: Any, value: Any) -> Any:
    """`value` unless it is the empty string, which means "not given"."""
    return default if value == "" else value


def register_resolvers() -> None:
    """Register the resolvers `eq`, `contains`, `if` and `resolve_default`; calling it twice is harmless."""
    OmegaConf.register_new_resolver("eq", equal, replace=True)
    OmegaConf.register_new_resolver("contains", contains, replace=True)
    OmegaConf.register_new_resolver("if", choose, replace=True)
    OmegaConf.register_new_resolver("resolve_default", resolve_default, replace=True)
