"""``isaac-appo blueprint``: what a run builds, drawn and listed, or a specification checked."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import List

from isaac_appo.config.errors import ConfigError
from isaac_appo.topology import specification
from isaac_appo.topology.document import read_mapping

_EPILOG = """
  isaac-appo blueprint task=Ant num_envs=1024
  isaac-appo blueprint task=Cartpole schedule=free --json > mine.json
  isaac-appo blueprint --validate mine.json
"""


def main(argv: List[str]) -> int:
    """Print, draw or validate a blueprint; exit code 2 if the command line or the specification is refused."""
    options = _parser().parse_intermixed_args(argv)
    if options.validate is not None:
        return _validate(options)
    from isaac_appo.commands.compose import compose

    words = [*options.overrides, *(["--config-dir", options.config_dir] if options.config_dir else [])]
    config = compose(words, "blueprint").config
    from isaac_appo.tasks.registry import TaskError  # torch and Warp: a typing error is answered before
    from isaac_appo.topology.blueprint import blueprint_of

    try:
        spec = blueprint_of(config)
    except TaskError as error:
        raise ConfigError([error]) from error
    if options.svg:
        _draw(options.svg, spec)
    print(json.dumps(spec, indent=2) if options.json else _text(spec))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isaac-appo blueprint",
        description="Layers, streams, devices, buffers to the byte and logging hooks of the run that train starts.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as isaac-appo train takes them")
    parser.add_argument("--json", action="store_true", help="print the specification as JSON")
    parser.add_argument("--svg", metavar="FILE", help="draw it into a file too")
    parser.add_argument("--validate", metavar="FILE", help="check a YAML or JSON specification instead")
    parser.add_argument("--config-dir", metavar="DIR", help="folder with your own task/ and train/")
    return parser


def _text(spec: specification.Spec) -> str:
    from isaac_appo.topology.diagram import breakdown, diagram

    try:
        "┌▼".encode(sys.stdout.encoding or "utf-8")
        plain = False
    except UnicodeEncodeError:
        plain = True
    return f"{diagram(spec, plain)}\n\n{breakdown(spec)}"


def _draw(path: str, spec: specification.Spec) -> None:
    from isaac_appo.topology.svg import svg

    try:
        Path(path).write_text(svg(spec), encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"--svg {path}: cannot be written ({error.strerror}). Give another file"]) from error
    print(f"Drawn: {path}", file=sys.stderr)


def _validate(options: argparse.Namespace) -> int:
    extra = [*options.overrides, *(f"--{name}" for name in ("json", "svg", "config_dir") if getattr(options, name))]
    if extra:
        raise ConfigError([f"--validate takes a file and nothing else, not {' '.join(extra)}. Leave it out"])
    spec = read_mapping(options.validate, "--validate")
    errors = specification.check(spec)
    if errors:
        count = f"{len(errors)} fault{'s' if len(errors) > 1 else ''}"
        head = f"isaac-appo blueprint: {options.validate} is refused, {count}:"
        print("\n  ".join([head, *map(str, errors)]), file=sys.stderr)
        return 2
    layers = ", ".join(specification.LAYERS)
    print(f"{options.validate}: valid. Every field of {layers} is there, {spec['policy']}, {spec['placement']}")
    return 0
