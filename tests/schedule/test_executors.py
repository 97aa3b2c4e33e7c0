"""Executors obey waits and records, overlap what may overlap, and end cleanly when a stream raises or hangs."""

from __future__ import annotations

import statistics
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Tuple, Type

import pytest

from isaac_appo.schedule.executors.base import Executor, ScheduleError
from isaac_appo.schedule.executors.inline import InlineExecutor
from isaac_appo.schedule.executors.threads import ThreadExecutor
from isaac_appo.schedule.program import CALIBRATION, Gate, Lockstep, Op, Program, Record, Wait

OPERATIONS = ("begin", "adopt", "act", "step", "bootstrap", "cut", "calibrate", "load", "proximal", "targets")
OPERATIONS += ("minibatch", "finish", "publish", "boundary")


def lockstep(horizon: int, epochs: int, minibatches: int, lag: int, num_updates: int, **more: Any) -> Program:
    return Lockstep(horizon, epochs, minibatches, num_updates, lag=lag, **more)


BOTH = pytest.mark.parametrize("make", [InlineExecutor, ThreadExecutor])


class Recorder:
    """Handlers that write down what ran, in order."""

    def __init__(self, **actions: Callable[..., None]) -> None:
        self.log: List[Tuple[str, Tuple[int, ...]]] = []
        self.lock = threading.Lock()
        self.actions = actions

    def handlers(self) -> Dict[str, Callable[..., None]]:
        return {name: self._handler(name) for name in OPERATIONS}

    def _handler(self, name: str) -> Callable[..., None]:
        def handler(*args: int) -> None:
            if name in self.actions:
                self.actions[name](*args)
            with self.lock:
                self.log.append((name, args))

        return handler

    def at(self, name: str, *args: int) -> int:
        return self.log.index((name, args))


@BOTH
@pytest.mark.parametrize("lag", [0, 1, 2, 3])
def test_order_of_operations(make: Type[Executor], lag: int) -> None:
    program = lockstep(horizon=2, epochs=1, minibatches=2, lag=lag, num_updates=7)
    recorder = Recorder()
    make(recorder.handlers()).run(program.streams())
    at = recorder.at
    assert at("calibrate", CALIBRATION) > at("bootstrap", 0, CALIBRATION)
    for u in range(7):
        version = max(0, u - lag)
        assert at("adopt", 0, u, version) > at("publish", version)
        assert at("load", u) > at("bootstrap", 0, u)
        assert at("load", u) > at("cut", 0, u + 1)
        if u > lag:  # the slab's memory is reused only after it was trained on
            assert at("begin", 0, u) > at("publish", u - lag)
        if u + 1 >= program.num_snapshots:  # a slot is overwritten only after its last reader has adopted it
            overwritten = u + 1 - program.num_snapshots
            assert at("publish", u + 1) > at("adopt", 0, overwritten + lag, overwritten)
    assert len(recorder.log) == sum(1 for s in program.streams().values() for step in s if isinstance(step, Op))


@pytest.mark.parametrize("lag", [0, 1, 3])
def test_a_snapshot_slot_waits_for_its_last_reader(lag: int) -> None:
    program = Lockstep(2, 1, 2, 20, lag=lag)
    readers: Dict[int, int] = {}
    for step in program.policy_stream(0):
        if isinstance(step, Op) and step.name == "adopt":
            readers[step.args[2]] = step.args[1]
    for update in range(program.num_snapshots, 15):
        steps = program.learner_steps(update)
        overwritten = update + 1 - program.num_snapshots
        wait = steps.index(Wait("adopted/0", readers[overwritten]))
        assert wait < steps.index(Op("publish", (update + 1,)))


@pytest.mark.parametrize(("lag", "overlaps"), [(0, False), (1, True)])
def test_streams_overlap_at_lag_1_and_not_at_lag_0(lag: int, overlaps: bool) -> None:
    program = lockstep(horizon=1, epochs=1, minibatches=1, lag=lag, num_updates=30)
    ends: List[float] = []
    recorder = Recorder(
        act=lambda worker, slab, t: time.sleep(0.04),
        minibatch=lambda u, e, m: time.sleep(0.03),
        boundary=lambda u: ends.append(time.perf_counter()),
    )
    executor = ThreadExecutor(recorder.handlers())
    executor.run(program.streams())
    # stages of 40 and 30 ms: an iteration takes the longer one, or both
    per_iteration = statistics.median(later - earlier for earlier, later in zip(ends[5:], ends[6:]))
    assert 0.039 <= per_iteration <= 0.042 if overlaps else per_iteration >= 0.069
    assert executor.busy_s["policy/0"] >= 31 * 0.04


@BOTH
def test_an_exception_in_a_stream_is_the_callers_with_its_traceback(make: Type[Executor]) -> None:
    def explode(update: int, epoch: int, index: int) -> None:
        raise ZeroDivisionError("in the learner")

    executor = make(Recorder(minibatch=explode).handlers())
    started = time.perf_counter()
    with pytest.raises(ZeroDivisionError, match="in the learner") as caught:
        executor.run(lockstep(4, 1, 2, 1, 50).streams())
    assert time.perf_counter() - started < 5.0
    assert "explode" in "".join(traceback.format_tb(caught.value.__traceback__))
    assert not [t for t in threading.enumerate() if t.name.startswith("stream-")]


@BOTH
def test_stop_ends_both_streams_within_a_step(make: Type[Executor]) -> None:
    executor: Executor
    recorder = Recorder(boundary=lambda update: executor.stop() if update == 3 else None)
    executor = make(recorder.handlers())
    executor.run(lockstep(2, 1, 2, 1, 1000).streams())
    assert recorder.log[-1][0] in ("boundary", "act", "step", "begin", "bootstrap", "cut", "adopt")
    assert ("boundary", (3,)) in recorder.log and ("load", (4,)) not in recorder.log


def test_inline_finds_a_deadlock() -> None:
    executor = InlineExecutor(Recorder().handlers())
    with pytest.raises(ScheduleError, match=r"deadlock.*snapshot"):
        executor.run(
            {"policy": iter([Wait("snapshot", 1)]), "learner": iter([Wait("ready", 0), Record("snapshot", 1)])}
        )


@BOTH
def test_a_gate_opens_when_its_condition_holds_and_is_asked_at_each_record(make: Type[Executor]) -> None:
    ran: List[str] = []
    handlers = {"close": lambda: ran.append("close"), "after": lambda: ran.append("after")}
    executor = make(handlers, gates={"closed": lambda count: len(ran) >= count})
    gated = iter([Gate("closed", (2,)), Op("after")])
    executor.run({"a": gated, "b": iter([Op("close"), Record("x", 0), Op("close"), Record("x", 1)])})
    assert ran == ["close", "close", "after"]


@BOTH
def test_an_event_that_goes_back_is_a_defect(make: Type[Executor]) -> None:
    executor = make(Recorder().handlers())
    with pytest.raises(ScheduleError, match="event ready was recorded as 1 after 1"):
        executor.run({"policy": iter([Record("ready", 1), Record("ready", 1)])})


@BOTH
def test_a_resumed_program_starts_where_it_is_told(make: Type[Executor]) -> None:
    program = lockstep(2, 1, 1, 1, 6, first_slabs=(5,), first_update=4)  # slab 4 is ready, slab 5 was in flight
    recorder = Recorder()
    executor = make(recorder.handlers())
    executor.mark(**program.marks())
    executor.run(program.streams())
    assert [args for name, args in recorder.log if name == "load"] == [(4,), (5,)]
    assert ("adopt", (0, 5, 4)) in recorder.log and ("adopt", (0, 4, 3)) not in recorder.log


def test_streams_beat_while_they_work_and_while_they_wait() -> None:
    beats: Dict[str, int] = {"policy/0": 0, "learner": 0}
    executor = ThreadExecutor(Recorder(act=lambda worker, slab, t: time.sleep(1.2)).handlers())
    executor.beat = lambda stream: beats.__setitem__(stream, beats[stream] + 1)
    executor.run(lockstep(1, 1, 1, 1, 0).streams())
    # begin, act, step, bootstrap, cut; for the learner two polls of 0.5 s and two operations
    assert beats["policy/0"] == 5 and beats["learner"] >= 4
