"""The OmegaConf resolvers that IsaacGymEnvs' YAML files use, so that such a file composes here unchanged."""

from __future__ import annotations

from typing import Any, Callable, Dict

from omegaconf import OmegaConf

RESOLVERS: Dict[str, Callable[..., Any]] = {
    "eq": lambda left, right: str(left).lower() == str(right).lower(),
    "contains": lambda part, whole: str(part).lower() in str(whole).lower(),
    "if": lambda condition, then, otherwise: then if condition else otherwise,
    "resolve_default": lambda default, value: default if value == "" else value,  # '' means "not given"
}


def register_resolvers() -> None:
    """Register them; calling it twice is harmless."""
    for name, function in RESOLVERS.items():
        OmegaConf.register_new_resolver(name, function, replace=True)
