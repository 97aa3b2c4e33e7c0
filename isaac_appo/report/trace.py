"""A timeline of a run: every operation of every stream, as a Chrome trace and as a picture.

The file opens in ``chrome://tracing`` and in Perfetto. Recording is switched on after some updates and off again after
a bounded number of them, so that its memory is bounded and a long run pays for it only then.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from isaac_appo.report.atomic_file import write_text
from isaac_appo.report.plots import picture
from isaac_appo.schedule.program import LEARNER

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WARMUP_UPDATES = 5
"""Updates before recording: first calls are slow, and the pipeline has to fill."""
ARGUMENTS: Dict[str, Tuple[str, ...]] = {
    "begin": ("worker", "slab"),
    "adopt": ("worker", "slab", "snapshot"),
    "pick": ("worker",),
    "copy": ("worker",),
    "act": ("worker", "slab", "t"),
    "step": ("worker", "slab", "t"),
    "bootstrap": ("worker", "slab"),
    "cut": ("worker", "next_slab"),
    "minibatch": ("slab", "epoch", "minibatch"),
    "publish": ("snapshot",),
}
"""Names of the arguments of each operation; those of the learner that are left out have ``slab`` alone."""
GROUPS: Dict[str, Tuple[str, ...]] = {
    "act": ("act", "bootstrap"),
    "env step": ("step",),
    "proximal": ("load", "proximal"),
    "targets": ("targets",),
    "minibatch": ("minibatch",),
    "publish": ("publish", "adopt", "copy", "pick", "finish"),
    "other": (),
}
"""Operations by colour in the picture; what is named nowhere is ``other``."""
_COLOURS = dict(zip(GROUPS, ("#1f5fa8", "#9db7d5", "#b7a6d8", "#5b8c5a", "#e08214", "#b2182b", "#bbbbbb")))
_GROUP_OF = {name: group for group, names in GROUPS.items() for name in names}
LABEL_SHARE = 0.08
"""Share of the picture's width that a slab's label takes; a shorter slab goes without."""
_SHADES = ("#dddddd", "#f2f2f2")


class _Event(NamedTuple):
    stream: str
    name: str
    args: Tuple[int, ...]
    begin_s: float
    end_s: float
    version: int


class Trace:
    """Records the operations of ``updates`` updates, after ``warmup`` others; ``done`` once it has them all.

    version_of: the snapshot that a policy stream acts with, or the learner's version, by the stream's name; asked at
    the end of each operation.
    """

    def __init__(self, updates: int, version_of: Callable[[str], int], warmup: int = WARMUP_UPDATES) -> None:
        self.done = False
        self._version_of = version_of
        self._boundaries, self._first, self._last = 0, max(1, warmup), max(1, warmup) + updates
        self._since: Optional[float] = None
        self._events: List[_Event] = []

    def boundary(self) -> bool:
        """An update is over; true while operations are to be handed to :meth:`operation`."""
        self._boundaries += 1
        if self._boundaries == self._first:
            self._since = time.perf_counter()
        self.done = self._boundaries >= self._last
        return self._since is not None and not self.done

    def operation(self, stream: str, name: str, args: Tuple[int, ...], begin_s: float, end_s: float) -> None:
        """An operation has ended (``time.perf_counter`` seconds); called by the stream that ran it.

        One that was under way when recording began, or ends after it, is left out.
        """
        if self._since is not None and begin_s >= self._since and not self.done:
            self._events.append(_Event(stream, name, args, begin_s, end_s, self._version_of(stream)))

    def to_json(self, title: str = "") -> str:
        """The trace in Chrome's format, times in microseconds since the recording began."""
        streams = sorted({event.stream for event in self._events}, key=lambda name: (name == LEARNER, name))
        zero = min((event.begin_s for event in self._events), default=0.0)
        names = [_metadata("process_name", 0, name=title or "isaac_appo")]
        names += [_metadata("thread_name", i, name=stream) for i, stream in enumerate(streams)]
        names += [_metadata("thread_sort_index", i, sort_index=i) for i in range(len(streams))]
        events = [
            {
                "ph": "X",
                "name": event.name,
                "cat": _GROUP_OF.get(event.name, "other"),
                "pid": 0,
                "tid": streams.index(event.stream),
                "ts": 1e6 * (event.begin_s - zero),
                "dur": 1e6 * (event.end_s - event.begin_s),
                "args": _arguments(event),
            }
            for event in sorted(self._events, key=lambda e: e.begin_s)
        ]
        return json.dumps({"traceEvents": [*names, *events], "displayTimeUnit": "ms"})

    def write(self, path: Path, title: str = "") -> None:
        """Write :meth:`to_json` to ``path``, atomically. Raises OSError."""
        write_text(path, self.to_json(title) + "\n")


def _arguments(event: _Event) -> Dict[str, int]:
    held = "version" if event.stream == LEARNER else "snapshot"
    return {held: event.version, **dict(zip(ARGUMENTS.get(event.name, ("slab",)), event.args))}


def _metadata(kind: str, tid: int, **args: Any) -> Dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": 0, "tid": tid, "args": args}


def render(trace_json: Path, png: Path, updates: int = 4) -> None:
    """Draw the first ``updates`` updates of a trace: streams as rows, operations coloured by what they do.

    Above each stream stand the slabs that it works on. Raises OSError, and ValueError for a trace without operations.
    """
    trace = json.loads(trace_json.read_text(encoding="utf-8"))
    names = {e["tid"]: e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "thread_name"}
    events = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    if not events:
        raise ValueError(f"{trace_json} holds no operation: the run was shorter than {WARMUP_UPDATES + 1} updates")
    end = _end_of(events, updates)
    events = [e for e in events if e["ts"] < end]
    size = (12.0, 0.9 + 1.1 * len(names))
    with picture(png, {"axes.spines.top": False, "axes.spines.left": False}, figsize=size, dpi=150) as axes:
        for row, (tid, name) in enumerate(sorted(names.items())):
            _draw_stream(axes, row, [e for e in events if e["tid"] == tid], end / 1e3)
            axes.text(-0.008, row + 0.08, name, ha="right", va="center", transform=axes.get_yaxis_transform())
        _finish(axes, len(names), end)
        process = next((e["args"]["name"] for e in trace["traceEvents"] if e["name"] == "process_name"), "")
        axes.set_title(process, loc="left", fontweight="bold", fontsize=10)


def _end_of(events: Sequence[Mapping[str, Any]], updates: int) -> float:
    """Where the picture ends, in microseconds: at the end of the last boundary in it."""
    ends = sorted(e["ts"] + e["dur"] for e in events if e["name"] == "boundary")
    return float(ends[updates - 1] if len(ends) >= updates else max(e["ts"] + e["dur"] for e in events))


def _draw_stream(axes: Axes, row: int, events: Sequence[Mapping[str, Any]], width: float) -> None:
    for group, colour in _COLOURS.items():
        bars = [(e["ts"] / 1e3, e["dur"] / 1e3) for e in events if _GROUP_OF.get(e["name"], "other") == group]
        axes.broken_barh(bars, (row - 0.2, 0.55), facecolor=colour, edgecolor="white", linewidth=0.2)
    for slab in dict.fromkeys(e["args"]["slab"] for e in events if "slab" in e["args"]):
        of_slab = [e for e in events if e["args"].get("slab") == slab]
        begin, end = of_slab[0]["ts"] / 1e3, (of_slab[-1]["ts"] + of_slab[-1]["dur"]) / 1e3
        axes.broken_barh([(begin, end - begin)], (row - 0.42, 0.18), color=_SHADES[slab % 2], linewidth=0)
        label = f"slab {slab}" + _held(of_slab)
        if min(end, width) - begin > LABEL_SHARE * width:
            axes.text((begin + min(end, width)) / 2, row - 0.33, label, ha="center", va="center", fontsize=8)


def _held(events: Sequence[Mapping[str, Any]]) -> str:
    """What a slab is worked on with: the snapshot of its first action, or the version of its first minibatch."""
    for event in events:
        if event["name"] == "act":
            return f", snapshot {event['args']['snapshot']}"
        if event["name"] == "minibatch":
            return f", version {event['args']['version']}"
    return ""


def _finish(axes: Axes, rows: int, end_us: float) -> None:
    from matplotlib.patches import Patch

    axes.set_xlim(0.0, end_us / 1e3)
    axes.set_ylim(rows - 0.6, -0.5)
    axes.set_yticks([])
    axes.set_xlabel("ms")
    patches = [Patch(color=colour, label=group) for group, colour in _COLOURS.items()]
    place: Any = {"loc": "lower right", "bbox_to_anchor": (1.0, 1.0), "ncols": len(patches)}
    axes.legend(handles=patches, frameon=False, fontsize=8, **place)
