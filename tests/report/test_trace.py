"""The timeline: every operation once, in order, with what it works on."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Dict, List, Optional, Tuple

import pytest

from isaac_appo.commands.main import main
from isaac_appo.report.trace import GROUPS, Trace, render
from isaac_appo.schedule.executors.base import Executor
from isaac_appo.schedule.pipeline import Pipeline, UpdateReport
from isaac_appo.schedule.program import LEARNER, Op
from tests.helpers import cartpole_pipeline

WARMUP, UPDATES = 3, 4


def record(num_updates: int = 12, **settings: Any) -> Tuple[Trace, Pipeline]:
    """Run a pipeline with a trace of updates 3, 4, 5 and 6."""

    def held(stream: str) -> int:
        return pipeline.learner.version if stream == LEARNER else pipeline.workers[0].held

    trace = Trace(UPDATES, held, WARMUP)

    def on_boundary(report: UpdateReport) -> None:
        executor: Optional[Executor] = pipeline.executor
        assert executor is not None
        executor.trace = trace.operation if trace.boundary() else None

    pipeline = cartpole_pipeline(on_boundary, num_updates=num_updates, **settings)
    pipeline.run()
    return trace, pipeline


def events(trace: Trace) -> Dict[str, List[Dict[str, Any]]]:
    """Operations by stream, in order of begin."""
    parsed = json.loads(trace.to_json())
    names = {e["tid"]: e["args"]["name"] for e in parsed["traceEvents"] if e["name"] == "thread_name"}
    found: Dict[str, List[Dict[str, Any]]] = {name: [] for name in names.values()}
    for event in parsed["traceEvents"]:
        if event["ph"] == "X":
            found[names[event["tid"]]].append(event)
    return found


@pytest.mark.parametrize(
    "settings", [{"executor": "inline", "lag": 0}, {"executor": "threads"}, {"executor": "inline"}]
)
def test_every_operation_of_the_recorded_updates_is_there_once(settings: Dict[str, Any]) -> None:
    trace, pipeline = record(**settings)
    streams = events(trace)
    assert list(streams) == ["policy/0", "learner"] and trace.done
    program = pipeline.program
    expected = [
        (s.name, s.args) for u in range(WARMUP, WARMUP + UPDATES) for s in program.learner_steps(u) if isinstance(s, Op)
    ]  # the last boundary is the one that ends the recording
    keys = ("slab", "epoch", "minibatch", "snapshot")
    seen = [(e["name"], tuple(e["args"][key] for key in keys if key in e["args"])) for e in streams["learner"]]
    assert seen == expected[:-1]
    acted = Counter((e["name"], e["args"]["slab"], e["args"]["t"]) for e in streams["policy/0"] if "t" in e["args"])
    assert set(acted.values()) == {1} and len(acted) >= 2 * 8 * (UPDATES - 2)
    order = [(slab, t, name == "step") for name, slab, t in acted]
    assert order == sorted(order)


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_operations_of_a_stream_do_not_overlap(executor: str) -> None:
    for stream in events(record(executor=executor)[0]).values():
        assert all(e["dur"] >= 0 and e["ts"] >= 0 for e in stream) and len(stream) > 20
        assert all(a["ts"] + a["dur"] <= b["ts"] + 1e-3 for a, b in zip(stream, stream[1:]))


def test_slab_and_version_show_the_lag() -> None:
    streams = events(record(executor="threads")[0])
    for event in streams["policy/0"]:
        assert event["args"]["worker"] == 0 and {"slab", "next_slab"} & set(event["args"])
        if event["name"] in ("act", "step"):
            assert event["args"]["snapshot"] == event["args"]["slab"] - 1  # lag 1
    for event in streams["learner"]:
        if event["name"] == "minibatch":
            assert event["args"]["version"] == event["args"]["slab"]
    categories = {e["cat"] for stream in streams.values() for e in stream}
    assert (
        categories <= set(GROUPS) and {"act", "env step", "proximal", "targets", "minibatch", "publish"} <= categories
    )


def test_what_is_recorded_is_bounded() -> None:
    short, long = record(num_updates=9)[0], record(num_updates=20)[0]
    assert len(events(short)["learner"]) == len(events(long)["learner"])
    assert not record(num_updates=5)[0].done


def test_an_operation_under_way_at_the_beginning_is_left_out() -> None:
    trace = Trace(1, lambda stream: 7, warmup=1)
    trace.operation("learner", "load", (0,), 0.0, 1.0)
    assert trace.boundary()
    trace.operation("learner", "boundary", (0,), 0.0, 1e9)
    trace.operation("learner", "load", (1,), 1e9, 1e9 + 1)
    assert not trace.boundary() and trace.done
    trace.operation("learner", "load", (2,), 1e9 + 2, 1e9 + 3)
    (only,) = events(trace)["learner"]
    assert only["args"] == {"version": 7, "slab": 1} and only["dur"] == pytest.approx(1e6)


def test_the_picture_shows_streams_and_refuses_an_empty_trace(tmp_path: Path) -> None:
    record(executor="threads")[0].write(tmp_path / "trace.json", "Cartpole")
    render(tmp_path / "trace.json", tmp_path / "trace.png")
    assert (tmp_path / "trace.png").read_bytes()[:4] == b"\x89PNG"
    record(num_updates=2)[0].write(tmp_path / "empty.json")
    with pytest.raises(ValueError, match="no operation"):
        render(tmp_path / "empty.json", tmp_path / "empty.png")


SMALL = [
    "task=Cartpole", "num_envs=16", "train.params.config.minibatch_size=64", "eval.enabled=False", "report.plot=False",
    "report.console=off", "report.tensorboard=False",
]  # fmt: skip


def test_a_run_leaves_a_trace_only_when_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *SMALL, "max_iterations=9", f"run_root={tmp_path}"]
    assert main([*words, "report.trace=true", "report.trace_updates=2"]) == 0
    run = tmp_path / "Cartpole" / "default" / "s42"
    parsed = json.loads((run / "trace.json").read_text())
    trained = {e["args"]["slab"] for e in parsed["traceEvents"] if e["name"] == "minibatch"}
    assert trained == {5, 6} and (run / "trace.png").exists()
    acted = [e["args"] for e in parsed["traceEvents"] if e["name"] == "act"]
    assert acted and all(args["snapshot"] == args["slab"] - 1 for args in acted)
    assert main([*words, "experiment=without"]) == 0
    assert not (tmp_path / "Cartpole" / "without" / "s42" / "trace.json").exists()


def test_a_run_too_short_for_a_trace_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["train", *SMALL, "max_iterations=2", "report.trace=true", f"run_root={tmp_path}"]
    assert main(words) == 0
    assert "shorter than 6 updates" in (tmp_path / "Cartpole" / "default" / "s42" / "log.txt").read_text()
