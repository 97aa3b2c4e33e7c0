"""Where each value of a composed configuration comes from: a YAML file or the command line."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence, Tuple

import yaml
from hydra.core.config_loader import ConfigLoader
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

_SEARCH = "hydra.searchpath"
COMMAND_LINE = "command line"


def origins(loader: ConfigLoader, words: Sequence[str], root: str = "config") -> Dict[str, str]:
    """Dotted key -> `FOLDER/FILE.yaml` or `command line`, for what `words` compose. Later files win."""
    parsed = OverridesParser.create().parse_overrides(list(words))
    urls = [str(url) for item in parsed if item.key_or_group == _SEARCH for url in _list(item.value())]
    found: Dict[str, str] = {}
    for default in loader.compute_defaults_list(root, list(words), RunMode.RUN).defaults:
        path, package = str(default.config_path), default.package
        if not path.startswith("hydra/"):
            start = tuple(package.split(".")) if package else ()
            content = _load(loader, path, urls)
            found.update({dotted(leaf): f"{path}.yaml" for leaf in leaves(content, start)})
    found.update({item.key_or_group: COMMAND_LINE for item in parsed if "/" not in item.key_or_group})
    return found


def _list(value: Any) -> List[Any]:
    return value if isinstance(value, list) else [value]


def _load(loader: ConfigLoader, path: str, urls: Sequence[str]) -> Any:
    """The content of one file: the package's own, else one from the folders that the user named."""
    result = loader.repository.load_config(path)  # type: ignore[attr-defined]
    if result is not None:
        return result.config
    files = [Path(url.partition("file://")[2] or url, f"{path}.yaml") for url in urls]
    return next((OmegaConf.load(file) for file in files if file.is_file()), OmegaConf.create())


def leaves(tree: DictConfig, above: Tuple[Any, ...] = ()) -> Iterator[Tuple[Any, ...]]:
    """The path of everything that is no section with keys; interpolations are not followed."""
    for name in tree:
        if _is_section(tree, name):
            yield from leaves(tree[name], (*above, name))
        else:
            yield (*above, name)


def _is_section(tree: DictConfig, name: Any) -> bool:
    node: Any = tree._get_node(name)
    return isinstance(node, DictConfig) and not node._is_interpolation() and bool(node._content)


def dotted(path: Tuple[Any, ...]) -> str:
    return ".".join(map(str, path))


def annotated(cfg: DictConfig, sources: Dict[str, str], resolve: bool) -> str:
    """`cfg` as YAML with the origin of each value, and the reference it was resolved from, in a comment."""
    return "\n".join(_lines(cfg, sources, resolve, ())) + "\n"


def _lines(tree: DictConfig, sources: Dict[str, str], resolve: bool, above: Tuple[Any, ...]) -> Iterator[str]:
    for name in tree:
        path, key = (*above, name), f"{'  ' * len(above)}{_inline(name)}"
        if _is_section(tree, name):
            yield f"{key}:"
            yield from _lines(tree[name], sources, resolve, path)
            continue
        node: Any = tree._get_node(name)
        raw = OmegaConf.to_container(node) if OmegaConf.is_config(node) else node._value()
        value = tree[name] if resolve else raw
        plain = OmegaConf.to_container(value, resolve=resolve) if OmegaConf.is_config(value) else value
        reference = f": {raw}" if resolve and isinstance(raw, str) and "${" in raw else ""
        yield f"{key}: {_inline(plain)}  # {_source(dotted(path), sources)}{reference}"


def _inline(value: Any) -> str:
    """One value in one line of YAML."""
    style = '"' if isinstance(value, str) and "\n" in value else None
    return yaml.safe_dump(value, default_flow_style=True, default_style=style, width=10**6).split("\n")[0]


def _source(path: str, sources: Dict[str, str]) -> str:
    """The origin of a key, or of the nearest section above it that has one."""
    while path not in sources and "." in path:
        path = path.rpartition(".")[0]
    return sources.get(path, "default")
