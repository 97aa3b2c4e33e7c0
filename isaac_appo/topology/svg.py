"""A blueprint as an SVG picture: the four layers downwards, and the weights' way back up to the workers."""

from __future__ import annotations

import textwrap
from html import escape
from typing import Any, List, Mapping

from isaac_appo.topology.diagram import Box, boxes

_WIDTH, _LEFT, _BOX_WIDTH = 900, 40, 720
_LINE, _TITLE, _GAP = 22, 40, 56
_FILLS = ("#e8f1fb", "#eef7ea", "#fdf3e1", "#f3eefa")
_EDGES = ("#2f6db3", "#4b8b3b", "#c07a12", "#7a55b0")
_INK, _GREY = "#1d2733", "#55606e"
_CHARS = 92  # of 13 px text in a box


def svg(spec: Mapping[str, Any]) -> str:
    """The picture as one self-contained file."""
    layers = boxes(spec)
    parts: List[str] = []
    tops: List[int] = []
    y = 70
    for i, box in enumerate(layers):
        tops.append(y)
        lines = _lines(box)
        parts += _box(box.title, lines, y, i)
        y += _height(lines)
        if box.arrow:
            parts += _down(box.arrow, y)
            y += _GAP
    parts += _back(tops[0], tops[2], layers)
    topology = spec["process_topology"]
    head = f"{spec['task']}: {spec['algorithm']}, {topology['schedule']}, lag {topology['lag']}"
    below = f"{topology['kind']}, {topology['executor']} executor, {topology['communication']}"
    foot = _text(_LEFT, y + 24, f"{below}; {spec['total_bytes']:,} bytes allocated once", 12, _GREY)
    title = _text(_LEFT, 40, head, 20, _INK, True)
    return "\n".join([*_head(y + 46), title, *parts, foot, "</svg>\n"])


def _head(height: int) -> List[str]:
    marker = '<marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="8" markerHeight="8" orient="auto">'
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'viewBox="0 0 {_WIDTH} {height}" font-family="Helvetica, Arial, sans-serif">',
        f'<defs>{marker}<path d="M0 0 L10 5 L0 10 z" fill="{_GREY}"/></marker></defs>',
        f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>',
    ]


def _lines(box: Box) -> List[str]:
    return [part for line in box.lines for part in textwrap.wrap(line, _CHARS)]


def _height(lines: List[str]) -> int:
    return _TITLE + _LINE * len(lines) + 10


def _box(title: str, lines: List[str], y: int, index: int) -> List[str]:
    frame = (
        f'<rect x="{_LEFT}" y="{y}" width="{_BOX_WIDTH}" height="{_height(lines)}" rx="8" '
        f'fill="{_FILLS[index]}" stroke="{_EDGES[index]}" stroke-width="1.5"/>'
    )
    rows = [_text(_LEFT + 18, y + _TITLE + 14 + i * _LINE, line, 13, _INK) for i, line in enumerate(lines)]
    return [frame, _text(_LEFT + 18, y + 27, title, 15, _EDGES[index], True), *rows]


def _down(label: str, y: int) -> List[str]:
    x = _LEFT + _BOX_WIDTH // 2
    line = f'<path d="M{x} {y} V{y + _GAP - 2}" stroke="{_GREY}" stroke-width="1.5" marker-end="url(#tip)"/>'
    return [line, _text(x + 14, y + _GAP // 2 + 4, label, 13, _GREY)]


def _back(rollout_y: int, learner_y: int, layers: List[Box]) -> List[str]:
    """The way back: snapshots from the learner to the workers, past the buffer on the right."""
    x, right = _LEFT + _BOX_WIDTH, _LEFT + _BOX_WIDTH + 50
    start, end = learner_y + _height(_lines(layers[2])) // 2, rollout_y + _height(_lines(layers[0])) // 2
    path = f"M{x} {start} H{right} V{end} H{x + 2}"
    middle = (start + end) // 2
    label = _text(0, 0, "publish / adopt snapshots", 13, _GREY, anchor="middle")
    return [
        f'<path d="{path}" fill="none" stroke="{_GREY}" stroke-width="1.5" marker-end="url(#tip)"/>',
        f'<g transform="translate({right + 20} {middle}) rotate(-90)">{label}</g>',
    ]


def _text(x: int, y: int, text: str, px: int, colour: str, bold: bool = False, anchor: str = "start") -> str:
    weight = ' font-weight="bold"' if bold else ""
    place = f'x="{x}" y="{y}" font-size="{px}" fill="{colour}" text-anchor="{anchor}"'
    return f"<text {place}{weight}>{escape(text)}</text>"
