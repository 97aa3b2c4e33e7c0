"""Plain containers to typed sections: converts every value, checks its own rules and collects all that is wrong."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional, Tuple, Type, TypeVar, Union, get_args, get_origin
from typing import get_type_hints as hints_of

from isaac_appo.config.errors import Finding, show
from isaac_appo.config.option import rules_of
from isaac_appo.config.suggest import nearest

Section = TypeVar("Section")
_LISTED = 14  # known keys named when none is like the unknown one
Suggest = Callable[[str], Optional[str]]


class Findings:
    """What is wrong (`errors`) and what has no effect (`warnings`)."""

    def __init__(self, suggest: Suggest) -> None:
        self.errors: List[Finding] = []
        self.warnings: List[str] = []
        self.suggest = suggest

    def error(self, path: str, value: Any, rule: str, fix: str) -> None:
        self.errors.append(Finding(path, value, rule, fix))


class MismatchError(Exception):
    """A value of the wrong type; the text is the rule it breaks."""


def read_section(section: Type[Section], node: Any, path: str, found: Findings) -> Section:
    """Make a `section` from a plain container; a key that is wrong is reported in `found` and takes its default."""
    if not isinstance(node, Mapping):
        found.error(path, node, "must be a section with keys", f"Use {path}.KEY=VALUE")
        return section()
    hints = hints_of(section)
    known = {item.name: item for item in fields(section)}  # type: ignore[arg-type]
    values: Dict[str, Any] = {}
    for name, item in known.items():
        if name in node:
            values[name] = _read_value(item, hints[name], node[name], _join(path, name), found)
        elif rules_of(item).get("required"):
            found.error(_join(path, name), "(missing)", f"is needed: {rules_of(item)['help']}", "Add it")
    for name in node:
        if name not in known:
            match = found.suggest(_join(path, str(name)))
            listed = ", ".join([*list(known)[:_LISTED], *(["..."] if len(known) > _LISTED else [])])
            fix = f"Did you mean {match}?" if match else f"Known here: {listed}"
            found.error(_join(path, str(name)), node[name], "unknown key", fix)
    return section(**values)


def default_of(item: Field[Any]) -> Any:
    """The default of a field made by `option`."""
    return item.default if item.default_factory is MISSING else item.default_factory()


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _read_value(item: Field[Any], hint: Any, value: Any, path: str, found: Findings) -> Any:
    """One field's value: its alias, a sub-section, or the value itself after type and rules."""
    rules = rules_of(item)
    if get_origin(hint) is Union:  # Optional
        if value is None:
            return None
        hint = next(kind for kind in get_args(hint) if kind is not type(None))
    if is_dataclass(hint) and isinstance(hint, type):
        return read_section(hint, value, path, found)
    if value is None and "null" in rules:
        return rules["null"]
    if isinstance(value, (str, int)) and value in rules.get("alias", {}):
        return rules["alias"][value]
    try:
        converted = convert(value, hint)
    except MismatchError as mismatch:
        found.error(path, value, str(mismatch), _fix(item, hint, value))
        return default_of(item)
    rule = _broken_rule(rules, converted)
    if rule is not None:
        found.error(path, value, rule, _fix(item, hint, value))
        return default_of(item)
    _read_effect(item, converted, path, found)
    return converted


def _read_effect(item: Field[Any], value: Any, path: str, found: Findings) -> None:
    """Refuse or warn about a value that asks for something that does not happen here."""
    rules = rules_of(item)
    if value == default_of(item):
        return
    if "refused" in rules:
        found.error(path, value, rules["refused"], f"Use {show(default_of(item))} or leave it out")
    if "inert" in rules and "engine" not in rules:
        found.warnings.append(f"{path} = {show(value)}: no effect, {rules['inert']}.")


_TYPES: Dict[Any, Tuple[Any, str]] = {
    bool: (bool, "must be True or False"),
    int: (int, "must be a whole number"),
    float: ((int, float), "must be a number"),
    str: ((str, int, float), "must be text"),
    dict: (Mapping, "must be a mapping"),
    list: (list, "must be a list"),
}


def convert(value: Any, hint: Any) -> Any:
    """`value` as the type `hint` (int, float, bool, str, List, Dict, Any); raises MismatchError."""
    if hint is Any:
        return value
    kind = get_origin(hint) or hint
    if kind is int and isinstance(value, float) and value.is_integer():
        return int(value)  # 1e6 is a whole number that YAML reads as a float
    accepted, rule = _TYPES[kind]
    if not isinstance(value, accepted) or (isinstance(value, bool) and kind is not bool):
        raise MismatchError(rule)
    return [convert(entry, get_args(hint)[0]) for entry in value] if kind is list else kind(value)


_BOUNDS: Dict[str, Any] = {
    "ge": (operator.ge, "at least"),
    "gt": (operator.gt, "above"),
    "le": (operator.le, "at most"),
    "lt": (operator.lt, "below"),
}


def _broken_rule(rules: Mapping[str, Any], value: Any) -> Optional[str]:
    """The rule that `value` breaks, or None when it keeps them all."""
    if value is None:
        return None
    if "choices" in rules and value not in rules["choices"]:
        return f"must be one of {', '.join(rules['choices'])}"
    if "pattern" in rules and not re.fullmatch(rules["pattern"], value):
        return str(rules["rule"])
    if isinstance(value, float) and not math.isfinite(value) and not (rules.get("infinite") and value == value):
        return "must be finite"
    bounds = [(inside, words, rules[name]) for name, (inside, words) in _BOUNDS.items() if name in rules]
    if all(inside(value, bound) for inside, _, bound in bounds):
        return None
    return "must be " + " and ".join(f"{words} {bound}" for _, words, bound in bounds)


def _fix(item: Field[Any], hint: Any, value: Any) -> str:
    """The nearest value that would be taken, as advice."""
    rules = rules_of(item)
    if "choices" in rules:
        return f"Use {nearest(str(value), rules['choices']) or show(default_of(item))}"
    if hint is bool:
        return f"Use {bool(value)}" if value in (0, 1) else f"Use {default_of(item)}"
    if hint in (int, float) and default_of(item) is not None:
        return f"Use {_nearest_number(rules, hint, value, default_of(item))}"
    if hint is str and "pattern" in rules:
        return f"Use {default_of(item) or re.sub(r'[^A-Za-z0-9._-]+', '_', str(value))}"
    return f"Use {show(default_of(item))}" if hint is str else "Leave it out"


def _nearest_number(rules: Mapping[str, Any], hint: Any, value: Any, default: Any) -> Any:
    """The number nearest to `value` inside the closed bounds, or the default when there is none."""
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    number = hint(value) if usable else default
    if ("gt" in rules and number <= rules["gt"]) or ("lt" in rules and number >= rules["lt"]):
        return default
    number = max(number, rules.get("ge", number))
    return hint(min(number, rules.get("le", number)))
