"""A GPU by itself, in torch alone: launches, copies, two streams side by side, and what nvidia-smi tells."""

from __future__ import annotations

import subprocess
import time
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch

from isaac_appo.bench.ratios import overlap

Row = Dict[str, Any]
Work = Callable[[], Any]


def seconds_of(device: torch.device, work: Work, times: int) -> float:
    """Wall seconds of one of ``times``, from a device at rest to a device at rest; the first is left out."""
    work()
    _rest(device)
    began = time.perf_counter()
    for _ in range(times):
        work()
    _rest(device)
    return (time.perf_counter() - began) / times


def _rest(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def captured(device: torch.device, work: Work) -> Work:
    """``work`` as the replay of a graph, on a GPU."""
    if device.type != "cuda":
        return work
    work()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph.replay


def launches(device: torch.device, times: int, copy_mib: int) -> List[Row]:
    """Launch latency, eager, in a graph of 100 and of a graph of one, and a copy (bytes read plus written)."""
    x, source = torch.zeros(32, device=device), torch.rand(copy_mib * 2**18, device=device)
    target = torch.empty_like(source)

    def add() -> None:
        x.add_(1.0)

    def many() -> None:
        for _ in range(100):
            add()

    rows: List[Row] = [
        {"what": "launch, eager", "us": 1e6 * seconds_of(device, add, times)},
        {"what": "launch, in a graph of 100", "us": 1e4 * seconds_of(device, captured(device, many), times // 4)},
        {"what": "graph of one launch", "us": 1e6 * seconds_of(device, captured(device, add), times)},
    ]
    copy_s = seconds_of(device, lambda: target.copy_(source), 10)
    return [*rows, {"what": "copy", "gb_per_s": 8e-9 * source.numel() / copy_s}]


def streams(device: torch.device, widths: Sequence[int]) -> List[Row]:
    """Two streams of matrix products that depend on each other: how much of the shorter is hidden, by their widths.

    With the same priority and with the first one urgent.
    """
    return [_two_streams(device, a, b, priority) for a in widths for b in widths for priority in (0, -1)]


def _two_streams(device: torch.device, a: int, b: int, priority: int) -> Row:
    works = [captured(device, _products(device, width)) for width in (a, b)]
    counts = [max(1, min(50, round(0.005 / max(seconds_of(device, work, 3), 1e-7)))) for work in works]
    made: List[Any] = [None, None]  # no streams on a CPU: torch takes None for the current one
    if device.type == "cuda":
        made = [torch.cuda.Stream(device, priority=p) for p in (priority, 0)]

    def run(*which: int) -> None:
        for i in which:
            with torch.cuda.stream(made[i]):
                for _ in range(counts[i]):
                    works[i]()

    times = [seconds_of(device, lambda which=which: run(*which), 5) for which in ((0,), (1,), (0, 1))]  # type: ignore[misc]
    return {
        "width": a,
        "width of the other": b,
        "urgent": priority < 0,
        **overlap(*times)._asdict(),
        "ms": 1e3 * times[2],
    }


def _products(device: torch.device, width: int) -> Work:
    x, y, w = (torch.rand(width, width, device=device) / width for _ in range(3))

    def work() -> None:
        for _ in range(max(1, 2048 // width)):
            torch.mm(x, w, out=y)
            torch.mm(y, w, out=x)

    return work


class Utilisation:
    """Samples nvidia-smi, in a process of its own, while something runs.

    It tells the share of time in which any kernel ran, not how much of the GPU it filled: a bound that is made of it is
    the least favourable one.
    """

    def __init__(self, on: bool = True) -> None:
        self._on, self._said = on, ""
        self._process: Optional[subprocess.Popen[str]] = None

    def __enter__(self) -> Utilisation:
        command = ["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
        if self._on:
            try:
                self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            except OSError:
                self._process = None
        return self

    def __exit__(self, *error: Any) -> None:
        if self._process is not None:
            self._process.terminate()
            self._said = self._process.communicate()[0]

    def share(self) -> Optional[float]:
        """The largest of the samples, 0 to 1, as warming up is among them. ``None`` where nothing tells."""
        values = [float(word) for word in self._said.split() if word.replace(".", "").isdigit()]
        return max(values) / 100.0 if values else None


def nvidia_smi(names: Sequence[str]) -> List[List[str]]:
    """A row per GPU, or nothing where there is no such program."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return []
    return [[cell.strip() for cell in line.split(",")] for line in done.stdout.splitlines() if not done.returncode]
