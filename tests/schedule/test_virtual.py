"""The simulated clock gives makespans that can be worked out by hand; the adversary reaches every interleaving."""

from __future__ import annotations

import math
import random
import statistics
from functools import partial
from typing import Any, Callable, Dict, List, Mapping, Sequence, Set, Tuple

import pytest

from isaac_appo.schedule.executors.base import Handler, ScheduleError
from isaac_appo.schedule.executors.virtual import BIASES, Interval, VirtualExecutor, adversary
from isaac_appo.schedule.program import Free, Gate, Lockstep, Op, Program, Record, Step, Wait

POLICY_OPERATIONS = ("begin", "adopt", "pick", "copy", "act", "step", "bootstrap", "cut")
LEARNER_OPERATIONS = ("calibrate", "load", "proximal", "targets", "minibatch", "finish", "publish", "boundary")
TIMES = {"adopt": 2, "act": 3, "step": 10, "bootstrap": 2, "calibrate": 5, "load": 1, "proximal": 4, "targets": 2}
TIMES.update({"minibatch": 3, "finish": 1, "publish": 2})
# horizon 2, 2 epochs of 2 minibatches:
TC0 = 2 * (3 + 10) + 2  # the calibration slab adopts nothing
TC = 2 + TC0  # 30
TL0 = 5 + 2  # calibrate, publish
TL = 1 + 4 + 2 + 4 * 3 + 1 + 2  # 22
UPDATES = 7


def nothing(*args: int) -> None:
    pass


HANDLERS = dict.fromkeys(POLICY_OPERATIONS + LEARNER_OPERATIONS, nothing)
GATES: Dict[str, Callable[..., bool]] = {"unread": lambda snapshot: True}


def timed(program: Program, durations: Any) -> VirtualExecutor:
    executor = VirtualExecutor(HANDLERS, GATES, durations=durations)
    executor.run(program.streams())
    return executor


def lockstep(lag: int, num_updates: int = UPDATES) -> Lockstep:
    return Lockstep(2, 2, 2, num_updates, lag=lag)


# ------------------------------------------------------------------------------------------------------ the clock


def test_sync_takes_collection_plus_learning() -> None:
    run = timed(lockstep(0), TIMES)
    assert run.now == TC0 + TL0 + UPDATES * (TC + TL) == 28 + 7 + 7 * 52
    assert run.busy_s == {"policy/0": TC0 + UPDATES * TC, "learner": TL0 + UPDATES * TL}
    assert run.idle_s == {"policy/0": TL0 + UPDATES * TL, "learner": TC0 + UPDATES * TC}
    assert run.op_s["minibatch"] == UPDATES * 12 and run.op_s["adopt"] == UPDATES * 2
    assert run.wait_s["learner ready/0"] == TC0 + UPDATES * TC


@pytest.mark.parametrize(("minibatch", "longer"), [(3, 30), (10, 50)])
def test_lag_1_takes_the_longer_of_collection_and_learning(minibatch: int, longer: int) -> None:
    times = {**TIMES, "minibatch": minibatch}
    tl = TL + 4 * (minibatch - 3)
    run = timed(lockstep(1), times)
    # slab -1 and its calibration; slab 0, for which the learner waits; the longer of both; the last update
    assert run.now == TC0 + TL0 + TC + (UPDATES - 1) * longer + tl
    assert max(TC, tl) == longer
    assert run.idle_s["policy/0"] == run.now - TC0 - UPDATES * TC
    more = timed(lockstep(1, UPDATES + 10), times)
    assert more.now - run.now == 10 * longer  # the steady state
    steady = more.idle_s["policy/0"] - run.idle_s["policy/0"]
    assert steady / (more.now - run.now) == 1 - TC / longer  # idle fraction


def test_a_boundary_overlaps_the_next_collection() -> None:
    run = timed(lockstep(0), {**TIMES, "boundary": 4})
    assert run.now == TC0 + TL0 + UPDATES * (TC + TL) + 4  # only the last one is waited for


def test_free_at_lag_0_keeps_the_time_of_sync_and_lag_1_hides_the_shorter_stage() -> None:
    times = {name: seconds for name, seconds in TIMES.items() if name != "adopt"}
    sync = timed(Free(2, 2, 2, UPDATES, max_policy_lag=0, lead=4), times)
    assert sync.now == timed(lockstep(0), times).now == TC0 + TL0 + UPDATES * (TC0 + TL)
    run = timed(Free(2, 2, 2, UPDATES, max_policy_lag=1, lead=4), times)
    assert run.now == TC0 + TL0 + UPDATES * TC0 + TL == timed(lockstep(1), times).now


def test_workers_run_side_by_side() -> None:
    one, two = (timed(Lockstep(2, 2, 2, UPDATES, num_workers=g, lag=1), TIMES) for g in (1, 2))
    assert one.now == two.now and two.busy_s["policy/1"] == one.busy_s["policy/0"]

    def slow_second(stream: str, op: Op) -> float:
        return TIMES.get(op.name, 0) * (2 if stream == "policy/1" else 1)

    slow = timed(Lockstep(2, 2, 2, UPDATES, num_workers=2, lag=1), slow_second)
    assert slow.now == 2 * TC0 + TL0 + UPDATES * 2 * TC + TL  # every slab waits for the slower worker


def jitter(seed: int) -> Callable[[str, Op], float]:
    draws: Dict[Tuple[str, Op], int] = {}
    rng = random.Random(seed)
    # in program order of a reference run, so that each operation takes the same time at every lag
    for name, steps in lockstep(0, 20).streams().items():
        for step in steps:
            if isinstance(step, Op):
                draws[name, key(step)] = TIMES.get(step.name, 0) * rng.choice([1, 1, 5])
    return lambda stream, op: draws[stream, key(op)]


def key(op: Op) -> Op:
    return Op(op.name, op.args[:2]) if op.name == "adopt" else op


def test_with_jitter_more_lag_never_costs_time_and_mostly_saves_some() -> None:
    spans = [[timed(lockstep(lag, 20), jitter(seed)).now for lag in (0, 1, 2, 3)] for seed in range(30)]
    assert all(sync > one >= two >= three for sync, one, two, three in spans)
    assert sum(two < one for _, one, two, _ in spans) >= 25
    assert spans[0] != spans[1]


def test_the_clock_stands_where_an_operation_starts_and_ends() -> None:
    times: List[Tuple[str, float]] = []

    def note(what: str) -> Callable[..., None]:
        return lambda *args: times.append((what, executor.now))

    handlers: Dict[str, Handler] = {"a": Interval(note("a starts"), note("a ends")), "b": note("b starts")}
    executor = VirtualExecutor(handlers, durations={"a": 3, "b": 2})
    executor.run({"x": [Op("a"), Record("done", 0), Op("b")], "y": [Op("b"), Wait("done", 0), Op("a")]})
    assert times == [
        ("a starts", 0), ("b starts", 0), ("a ends", 3), ("b starts", 3), ("a starts", 3), ("a ends", 6)
    ]  # fmt: skip
    assert executor.now == 6 and executor.idle_s == {"x": 1, "y": 1} and executor.wait_s == {"y done": 1}


def test_an_interval_is_a_handler_for_every_executor() -> None:
    log: List[Any] = []
    Interval(lambda *a: log.append(("start", a)), lambda *a: log.append(("end", a)))(1, 2)
    assert log == [("start", (1, 2)), ("end", (1, 2))]


# -------------------------------------------------------------------------------------------------- the adversary


def explore(streams: Mapping[str, Sequence[Step]], seed: int, bias: str = "uniform") -> VirtualExecutor:
    executor = VirtualExecutor({"op": nothing}, pick=adversary(seed, bias))
    executor.run(streams)
    return executor


def histories(streams: Mapping[str, Sequence[Step]], seeds: int) -> Set[str]:
    """Starts (capitals) and ends of operations named a, b, c, d, in order."""
    found = set()
    for seed in range(seeds):
        log: List[str] = []
        handlers = {k: Interval(partial(log.append, k.upper()), partial(log.append, k)) for k in "abcd"}
        VirtualExecutor(handlers, pick=adversary(seed)).run(streams)
        found.add("".join(log))
    return found


def test_the_uniform_adversary_reaches_every_interleaving_and_no_other() -> None:
    free = histories({"x": [Op("a"), Op("b")], "y": [Op("c"), Op("d")]}, 3000)
    assert len(free) == math.comb(8, 4) and {sorted(h) == sorted("AaBbCcDd") for h in free} == {True}
    ordered = histories({"x": [Op("a"), Record("done", 0), Op("b")], "y": [Wait("done", 0), Op("c")]}, 300)
    assert ordered == {"AaBbCc", "AaBCbc", "AaBCcb", "AaCBbc", "AaCBcb", "AaCcBb"}


def test_a_seed_decides_the_interleaving() -> None:
    streams = {"x": [Op("op")] * 30, "y": [Op("op")] * 30}
    for bias in BIASES:
        runs = [explore(streams, seed, bias).choices for seed in (1, 1, 2)]
        assert runs[0] == runs[1] != runs[2]
    assert explore(streams, 1).choices != explore(streams, 1, "starve").choices


def test_biases_starve_rush_and_alternate() -> None:
    streams = {name: [Op("op")] * 50 for name in "xyz"}

    def choices(bias: str) -> List[List[int]]:
        # until one of the streams ends, after its 100 transitions
        return [explore(streams, seed, bias).choices[:100] for seed in range(40)]

    def switches(bias: str) -> float:
        runs = choices(bias)
        return sum(a != b for run in runs for a, b in zip(run, run[1:])) / sum(map(len, runs))

    assert switches("rush") < 0.1 < 0.6 < switches("uniform") < 0.75 < 0.9 < switches("alternate")

    def longest_wait(run: List[int], stream: int) -> int:
        return max(len(part) for part in "".join(map(str, run)).split(str(stream)))

    waits = {bias: [max(longest_wait(run, k) for k in range(3)) for run in choices(bias)] for bias in BIASES}
    middle = {bias: statistics.median(waits[bias]) for bias in BIASES}
    assert middle["alternate"] < 7 < middle["uniform"] < 15 < 20 < middle["starve"] and max(waits["starve"]) > 60
    starved = {max(range(3), key=partial(longest_wait, run)) for run in choices("starve")}
    assert starved == {0, 1, 2}


# ------------------------------------------------------------------------------------------------------- the rest


@pytest.mark.parametrize("order", [{}, {"pick": adversary(0)}])
def test_a_deadlock_names_what_each_stream_waits_for(order: Any) -> None:
    executor = VirtualExecutor({"op": nothing}, {"shut": lambda k: False}, **order)
    streams: Dict[str, List[Step]] = {
        "x": [Op("op"), Record("a", 3), Wait("a", 4)],
        "y": [Wait("b", 0)],
        "z": [Gate("shut", (7,)), Op("op")],
        "v": [Op("op")],
    }
    plight = (
        r"deadlock: x waits for a 4 \(now 3\); y waits for b 0 \(now never recorded\); z waits at gate shut\(7,\); v"
    )
    with pytest.raises(ScheduleError, match=plight + " has ended"):
        executor.run(streams)


@pytest.mark.parametrize("order", [{}, {"pick": adversary(0)}])
def test_a_gate_is_asked_again_at_a_record_only(order: Any) -> None:
    opened: List[bool] = []
    handlers = {"op": nothing, "open": lambda: opened.append(True)}
    ask = {"g": lambda: bool(opened)}
    # y opens the gate after x has found it closed, and tells nobody
    busy: List[Step] = [Op("op"), Op("op"), Op("op"), Op("op"), Op("open")]
    wait: Dict[str, List[Step]] = {"x": [Gate("g"), Record("b", 0)], "y": busy}
    with pytest.raises(ScheduleError, match="x waits at gate g"):
        VirtualExecutor(handlers, ask, **order).run(wait)
    opened.clear()
    VirtualExecutor(handlers, ask, **order).run({**wait, "y": [*busy, Record("c", 0)]})


@pytest.mark.parametrize("order", [{"durations": {"op": 1}}, {"pick": adversary(0)}])
@pytest.mark.parametrize("last", [1, 5])
def test_stop_ends_every_stream(order: Any, last: int) -> None:
    calls: List[int] = []

    def handler() -> None:
        calls.append(1)
        if len(calls) == last:
            executor.stop()

    executor = VirtualExecutor({"op": handler}, **order)
    executor.run({"x": [Op("op")] * 50, "y": [Op("op")] * 50, "z": [Wait("never", 0)]})
    assert len(calls) == last


@pytest.mark.parametrize("order", [{}, {"pick": adversary(0)}])
def test_a_record_that_goes_back_is_a_defect(order: Any) -> None:
    with pytest.raises(ScheduleError, match="event a was recorded as 1 after 1"):
        VirtualExecutor({}, **order).run({"x": [Record("a", 1), Record("a", 1)]})


def test_bad_settings_are_refused() -> None:
    with pytest.raises(ValueError, match="either durations or a picker"):
        VirtualExecutor({}, durations={}, pick=adversary(0))
    with pytest.raises(ValueError, match=r"no operation is called stpe: there are \['step'\]"):
        VirtualExecutor({"step": nothing}, durations={"stpe": 1.0})
    with pytest.raises(ValueError, match=r"x: op\(1,\) takes -1 s"):
        VirtualExecutor({"op": nothing}, durations={"op": -1}).run({"x": [Op("op", (1,))]})
    with pytest.raises(ValueError, match="bias=random is not one of uniform, starve"):
        adversary(0, "random")
