"""A blueprint as an SVG picture: the four layers downwards, and the weights' way back up to the workers."""

from __future__ import annotations

import textwrap
from html import escape
from typing import Any, List, Mapping

from isaac_appo.topology.diagram import boxes

_WIDTH, _LEFT, _BOX_WIDTH = 900, 40, 720
_LINE, _TITLE, _GAP = 22, 40, 56
_FILLS = ("#e8f1fb", "#eef7ea", "#fdf3e1", "#f3eefa")
_EDGES = ("#2f6db3", "#4b8b3b", "#c07a12", "#7a55b0")
_INK, _GREY = "#1d2733", "#55606e"
_CHARS = 92  # of 13 px text in a box
_HEAD = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
    'font-family="Helvetica, Arial, sans-serif">\n'
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    '<path d="M0 0 L10 5 L0 10 z" fill="{grey}"/></marker></defs>\n<rect width="{width}" height="{height}" '
    'fill="#ffffff"/>'
)


def svg(spec: Mapping[str, Any]) -> str:
    """The picture as one self-contained file."""
    topology = spec["process_topology"]
    head = f"{spec['task']}: {spec['algorithm']}, {topology['schedule']}, lag {topology['lag']}"
    parts = [_text(_LEFT, 40, head, 20, _INK, ' font-weight="bold"')]
    y, middles = 70, []
    for box, fill, edge in zip(boxes(spec), _FILLS, _EDGES):
        lines = [part for line in box.lines for part in textwrap.wrap(line, _CHARS)]
        height = _TITLE + _LINE * len(lines) + 10
        parts += _box(box.title, lines, y, height, f'fill="{fill}" stroke="{edge}"', edge)
        middles.append(y + height // 2)
        y += height
        if box.arrow:
            x = _LEFT + _BOX_WIDTH // 2
            parts += [_arrow(f"M{x} {y} V{y + _GAP - 2}"), _text(x + 14, y + _GAP // 2 + 4, box.arrow, 13, _GREY)]
            y += _GAP
    parts += _back(middles[2], middles[0])
    foot = f"{topology['kind']}, {topology['executor']} executor, {topology['communication']}"
    parts.append(_text(_LEFT, y + 24, f"{foot}; {spec['total_bytes']:,} bytes allocated once", 12, _GREY))
    return "\n".join([_HEAD.format(width=_WIDTH, height=y + 46, grey=_GREY), *parts, "</svg>\n"])


def _box(title: str, lines: List[str], y: int, height: int, paint: str, edge: str) -> List[str]:
    place = f'x="{_LEFT}" y="{y}" width="{_BOX_WIDTH}" height="{height}" rx="8"'
    rows = [_text(_LEFT + 18, y + _TITLE + 14 + i * _LINE, line, 13, _INK) for i, line in enumerate(lines)]
    head = _text(_LEFT + 18, y + 27, title, 15, edge, ' font-weight="bold"')
    return [f'<rect {place} {paint} stroke-width="1.5"/>', head, *rows]


def _back(start: int, end: int) -> List[str]:
    """The way back: snapshots from the learner to the workers, past the buffer on the right."""
    x, right = _LEFT + _BOX_WIDTH, _LEFT + _BOX_WIDTH + 50
    label = _text(0, 0, "publish / adopt snapshots", 13, _GREY, ' text-anchor="middle"')
    turned = f'<g transform="translate({right + 20} {(start + end) // 2}) rotate(-90)">{label}</g>'
    return [_arrow(f"M{x} {start} H{right} V{end} H{x + 2}"), turned]


def _arrow(path: str) -> str:
    return f'<path d="{path}" fill="none" stroke="{_GREY}" stroke-width="1.5" marker-end="url(#tip)"/>'


def _text(x: int, y: int, text: str, px: int, colour: str, more: str = "") -> str:
    return f'<text x="{x}" y="{y}" font-size="{px}" fill="{colour}"{more}>{escape(text)}</text>'
