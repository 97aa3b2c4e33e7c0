"""The OmegaConf resolvers that IsaacGymEnvs' YAML files use, so that such a file composes here unchanged."""

from __future__ import annotations

from typing import Any, Callable, Dict

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


RESOLVERS: Dict[str, Callable[..., Any]] = {
    "eq": equal,
    "contains": contains,
    "if": choose,
    "resolve_default": resolve_default,
}


def register_resolvers() -> None:
    """Register the resolvers `eq`, `contains`, `if` and `resolve_default`; calling it twice is harmless."""
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)
