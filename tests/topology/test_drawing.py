"""The blueprint as text and as SVG."""

from __future__ import annotations

import copy
import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any, Dict, List

import pytest

import isaac_appo.topology
from isaac_appo.topology.diagram import boxes, breakdown, diagram, size
from isaac_appo.topology.svg import svg

TITLES = (
    "ROLLOUT WORKER LAYER",
    "EXPERIENCE BUFFER STORAGE LAYER",
    "LEARNER / OPTIMIZER LAYER",
    "EVALUATION / LOGGING HOOK LAYER",
)


@pytest.fixture
def spec() -> Dict[str, Any]:
    found: Dict[str, Any] = json.loads(Path(isaac_appo.topology.__file__).with_name("example.json").read_text())
    return found


def test_the_diagram_has_four_boxes_of_one_width_with_arrows_between(spec: Dict[str, Any]) -> None:
    lines = diagram(spec).splitlines()
    framed = [line for line in lines if line[0] in "┌│└"]
    assert {len(line) for line in framed} == {78}
    assert [line.strip("│ ") for line in lines if line.strip("│ ") in TITLES] == list(TITLES)
    assert sum(line.count("▼") for line in lines) == sum(line.count("┬") for line in lines) == 3
    arrow = lines[0].__len__() // 2
    assert {line.index("│") for line in lines if line[0] == " "} == {arrow}
    assert {line.index("▼") for line in lines if "▼" in line} == {arrow}


def test_the_diagram_tells_this_run(spec: Dict[str, Any]) -> None:
    text = diagram(spec)
    assert "[Env 0] [Env 1] ... [Env 4095]  Ant on mujoco (cpu)" in text
    assert "RolloutBuffer (in-process RAM, cpu), cleared after each update" in text
    assert "capacity: 131,072 transitions" in text and "minibatches of 32,768 rows" in text
    assert "4 epochs x 2 minibatches" in text and "lag 1" in text
    assert "TensorBoard" in text
    hooks = spec["evaluation_logging_hook_layer"]["hooks"]
    next(hook for hook in hooks if hook["name"] == "TensorBoard")["frequency"] = "never"
    assert "TensorBoard" not in diagram(spec)


@pytest.mark.parametrize(
    ("envs", "shown"), [(1, "[Env 0]  "), (3, "[Env 0] [Env 1] [Env 2]  "), (4, "[Env 0] [Env 1] ... [Env 3]  ")]
)
def test_few_environments_are_all_drawn(spec: Dict[str, Any], envs: int, shown: str) -> None:
    spec["rollout_worker_layer"]["envs"] = envs
    assert boxes(spec)[0].lines[0].startswith(shown)


def test_the_plain_diagram_is_the_same_in_ascii(spec: Dict[str, Any]) -> None:
    plain = diagram(spec, plain=True)
    assert plain.isascii()
    assert [len(line) for line in plain.splitlines()] == [len(line) for line in diagram(spec).splitlines()]


def test_the_breakdown_has_every_group_tensor_stream_and_hook(spec: Dict[str, Any]) -> None:
    text = breakdown(spec)
    for group in spec["tensor_groups"]:
        assert f"{group['device']}, {size(group['bytes'])}: {group['holds']}" in text
    named: List[Dict[str, Any]] = [
        *spec["process_topology"]["streams"],
        *spec["evaluation_logging_hook_layer"]["hooks"],
        *spec["experience_buffer_storage_layer"]["slab_of_first_worker"],
    ]
    for item in named:
        assert f"\n  {item['name']} " in text
    assert "single-process" in text and "no pipes, sockets" in text
    assert "float32 [17, 4096, 60]" in text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (1023, "1,023 bytes"), (1536, "1,536 bytes (1.5 KiB)"), (2**30, "1,073,741,824 bytes (1.0 GiB)")],
)
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


SVG = "{http://www.w3.org/2000/svg}"


def test_the_picture_is_well_formed_and_its_boxes_do_not_overlap(spec: Dict[str, Any]) -> None:
    root = ElementTree.fromstring(svg(spec))
    assert root.tag == f"{SVG}svg"
    width, height = float(root.attrib["width"]), float(root.attrib["height"])
    frames = [r for r in root.iter(f"{SVG}rect") if "rx" in r.attrib]
    assert len(frames) == 4
    edges = [(float(r.attrib["y"]), float(r.attrib["y"]) + float(r.attrib["height"])) for r in frames]
    assert all(bottom < top for (_, bottom), (top, _) in zip(edges, edges[1:])) and edges[-1][1] < height
    texts = [(t.text or "", float(t.attrib["x"]), float(t.attrib["y"])) for t in root.iter(f"{SVG}text")]
    for title, (top, bottom) in zip(TITLES, edges):
        inside = [text for text, x, y in texts if top < y < bottom and x < 100]
        assert inside[0] == title and len(inside) > 2
    assert all(0 <= x < width and 0 <= y < height for _, x, y in texts)
    assert "publish / adopt snapshots" in [text for text, _, _ in texts]


def test_names_are_escaped_in_the_picture(spec: Dict[str, Any]) -> None:
    spec = copy.deepcopy(spec)
    spec["task"] = '<Ant & "co">'
    texts = [t.text or "" for t in ElementTree.fromstring(svg(spec)).iter(f"{SVG}text")]
    assert texts[0].startswith('<Ant & "co">: APPO')
