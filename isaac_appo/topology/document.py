"""A mapping read from a YAML or JSON file that a user wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

import yaml

from isaac_appo.config.errors import ConfigError


class _Loader(yaml.SafeLoader):
    """YAML's safe loader; a key given twice is an error, since the first value would be lost without a word."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Dict[Any, Any]:
        seen = set()
        for key_node, _ in node.value:
            key = self.construct_object(key_node, deep=True)
            if not isinstance(key, str):
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} is no text", key_node.start_mark)
            if key in seen:
                raise yaml.constructor.ConstructorError(None, None, f"key {key!r} comes twice", key_node.start_mark)
            seen.add(key)
        return super().construct_mapping(node, deep)


def read_mapping(path: str, option: str) -> Dict[str, Any]:
    """The mapping in the file ``path`` that ``option`` names. Raises ConfigError with what is wrong and where."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([f"{option} {path}: cannot be read ({reason}). Give a YAML or JSON file"]) from error
    try:
        found = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError([f"{option} {path}: is neither YAML nor JSON: {' '.join(str(error).split())}"]) from error
    if not isinstance(found, dict):
        raise ConfigError([f"{option} {path}: holds {type(found).__name__}, not a mapping. Write name: value lines"])
    return found
