"""A blueprint as text: the diagram of its four layers, then the breakdown."""

from __future__ import annotations

import textwrap
from typing import Any, List, Mapping, NamedTuple, Tuple

from isaac_appo.topology.specification import LAYERS, Spec

_WIDTH = 76
_ASCII = str.maketrans("┌┐└┘─│┬▼", "++++-|+v")


class Box(NamedTuple):
    """One layer: its title, what stands in it, and what goes on to the next layer."""

    title: str
    lines: Tuple[str, ...]
    arrow: str


def boxes(spec: Spec) -> List[Box]:
    """The four layers of a run's blueprint, from experience to metrics."""
    rollout, buffer, learner, hooks = (spec[layer] for layer in LAYERS)
    streams = spec["process_topology"]["streams"]
    acting = [stream for stream in streams if stream["envs"]]
    names = acting[0]["name"] + (f" .. {acting[-1]['name']}" if len(acting) > 1 else "")
    on = [hook["name"] for hook in hooks["hooks"] if hook["frequency"] != "never"]
    return [
        Box(
            "ROLLOUT WORKER LAYER",
            (
                f"{_envs(rollout['envs'])}  {spec['task']} on {rollout['engine']} ({rollout['device']})",
                f"{rollout['mode']}, {_count(len(acting), 'policy stream')}: {names}",
                f"generates ({', '.join(rollout['generates'])})",
            ),
            "rows, in place; ready / free events",
        ),
        Box(
            "EXPERIENCE BUFFER STORAGE LAYER",
            (
                f"{buffer['buffer_class']} ({buffer['location']}, {buffer['device']}), {buffer['lifetime']}",
                buffer["implementation"],
                f"capacity: {buffer['capacity_transitions']:,} transitions, {size(buffer['capacity_bytes'])}",
            ),
            f"minibatches of {learner['minibatch_rows']:,} rows",
        ),
        Box(
            "LEARNER / OPTIMIZER LAYER",
            (
                f"actor + critic forward, {learner['advantage']} targets, {learner['loss']} loss, backward "
                f"({learner['device']})",
                f"{learner['epochs']} epochs x {_count(learner['minibatches'], 'minibatch', 'es')}, "
                f"{learner['optimizer']}",
                f"publishes snapshots to the workers; lag {spec['process_topology']['lag']}",
            ),
            "metrics",
        ),
        Box("EVALUATION / LOGGING HOOK LAYER", ("; ".join(hooks["metrics"]), ", ".join(on)), ""),
    ]


def diagram(spec: Spec, plain: bool = False) -> str:
    """The four layers as boxes and arrows; ``plain`` draws them with ASCII characters alone."""
    lines: List[str] = []
    for i, box in enumerate(boxes(spec)):
        lines += [_edge("┌", "▼" if i else "─", "┐"), f"│{box.title:^{_WIDTH}}│"]
        lines += [f"│  {part:<{_WIDTH - 3}} │" for line in box.lines for part in textwrap.wrap(line, _WIDTH - 3)]
        lines.append(_edge("└", "┬" if box.arrow else "─", "┘"))
        if box.arrow:
            lines.append(f"{'│':>{_WIDTH // 2 + 2}} {box.arrow}")
    text = "\n".join(lines)
    return text.translate(_ASCII) if plain else text


def _edge(left: str, middle: str, right: str) -> str:
    return f"{left}{middle:─>{_WIDTH // 2 + 1}}".ljust(_WIDTH + 1, "─") + right


def breakdown(spec: Spec) -> str:
    """Process topology, hardware placement, buffers and hooks, a section each."""
    topology, learner = spec["process_topology"], spec[LAYERS[2]]
    sections = {
        "Process topology": [
            ("processes", topology["kind"]),
            ("executor", topology["executor"]),
            ("schedule", f"{topology['schedule']}, lag {topology['lag']} updates"),
            ("communication", topology["communication"]),
            *map(_stream, topology["streams"]),
        ],
        f"Data placement ({spec['placement']})": [
            ("environment", f"{spec[LAYERS[0]]['device']}, tensors of the engine, stepped in place"),
            *((g["name"], f"{g['device']}, {size(g['bytes'])}: {g['holds']}") for g in spec["tensor_groups"]),
            ("in all", f"{size(spec['total_bytes'])} allocated once, engine and activations apart"),
            ("transfer", learner["transfer"]),
            ("parameter sync", learner["parameter_sync"]),
        ],
        f"Buffer ({spec['policy']} {spec['algorithm']})": _buffer(spec),
        "Hooks": [(hook["name"], f"{hook['frequency']} ({hook['detail']})") for hook in spec[LAYERS[3]]["hooks"]],
    }
    return "\n\n".join(_section(title, rows) for title, rows in sections.items())


def size(count: int) -> str:
    """Bytes, exact, with a rounded reading."""
    for unit, factor in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= factor:
            return f"{count:,} bytes ({count / factor:.1f} {unit})"
    return f"{count:,} bytes"


def _buffer(spec: Spec) -> List[Tuple[str, str]]:
    buffer = spec[LAYERS[1]]
    return [
        ("class", f"{buffer['buffer_class']}: {buffer['implementation']}"),
        ("lifetime", buffer["lifetime"]),
        ("capacity", f"{buffer['capacity_transitions']:,} transitions, {buffer['capacity_bytes']:,} bytes"),
        *((t["name"], f"{t['dtype']} {t['shape']}") for t in buffer["slab_of_first_worker"]),
    ]


def _stream(stream: Mapping[str, Any]) -> Tuple[str, str]:
    envs = f", {_count(stream['envs'], 'env')}" if stream["envs"] else ""
    threads = stream["torch_threads"]  # 0: chosen when the run starts
    chosen = _count(threads, "torch thread") if threads else "threads chosen at start"
    return stream["name"], f"{stream['role']}{envs}, {chosen}"


def _section(title: str, rows: List[Tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows) + 2
    return "\n".join([title, *(f"  {name:<{width}}{text}" for name, text in rows)])


def _envs(number: int) -> str:
    first = [f"[Env {i}]" for i in range(min(number, 3))]
    return " ".join(first if number <= 3 else [*first[:2], "...", f"[Env {number - 1}]"])


def _count(number: int, noun: str, plural: str = "s") -> str:
    return f"{number:,} {noun}{'' if number == 1 else plural}"
