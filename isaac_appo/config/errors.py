"""The one error of the configuration, and the findings it is made of."""

from __future__ import annotations

from typing import Any, Iterable, List, NamedTuple

from isaac_appo.errors import UserError


class Finding(NamedTuple):
    """One thing wrong with one key: the value, the rule it breaks and the nearest fix."""

    path: str
    value: Any
    rule: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path} = {show(self.value)}: {self.rule}. {self.fix}"


class ConfigError(UserError, ValueError):
    """Everything wrong with a configuration, one line each in `errors`."""

    def __init__(self, errors: Iterable[object]) -> None:
        self.errors: List[str] = [str(error) for error in errors]
        count = "1 error" if len(self.errors) == 1 else f"{len(self.errors)} errors"
        super().__init__("\n  ".join([f"{count} in the configuration:", *self.errors]))


def show(value: Any) -> str:
    """`value` as it would be typed, cut to one short piece of text."""
    text = "''" if value == "" else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
