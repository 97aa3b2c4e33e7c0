"""One key of the configuration: its default, its help text and the rules its value must keep."""

from __future__ import annotations

import copy
from dataclasses import Field, field, fields, is_dataclass
from typing import Any, Collection, Iterator, Mapping, Tuple, get_type_hints

RULES = frozenset(
    {
        "ge",  # value >= ge
        "gt",  # value > gt
        "le",  # value <= le
        "lt",  # value < lt
        "infinite",  # inf is allowed
        "choices",  # the only values allowed
        "alias",  # {other spelling: value}
        "null",  # what None stands for; without it None is an error
        "pattern",  # regular expression the whole text must match
        "rule",  # the pattern in words
        "refused",  # reason why any value but the default is an error
        "inert",  # reason why any value but the default is a warning
        "engine",  # the one engine that reads the key: inert with every other
        "required",  # the key must be present
        "silent",  # accepted and not read, without a word
    }
)


def option(default: Any, text: str, **rules: Any) -> Any:
    """A dataclass field with help text and rules (see RULES). A class as default makes a fresh section."""
    unknown = set(rules) - RULES
    if unknown:
        raise TypeError(f"unknown rules {sorted(unknown)}; known: {sorted(RULES)}")
    metadata = {"help": text, **rules}
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    if isinstance(default, (dict, list)):
        return field(default_factory=lambda: copy.deepcopy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def walk(section: Any, prefix: str = "", skip: Collection[str] = ()) -> Iterator[Tuple[str, Field[Any], Any]]:
    """Dotted key, field and type of all options below a section, in order; none below one with a rule in `skip`."""
    hints = get_type_hints(section)
    for item in fields(section):
        path, hint = prefix + item.name, hints[item.name]
        if not any(rule in item.metadata for rule in skip):
            yield path, item, hint
            if is_dataclass(hint):
                yield from walk(hint, path + ".", skip)


def rules_of(item: Field[Any]) -> Mapping[str, Any]:
    """The rules of a dataclass field made by `option`."""
    return item.metadata
