"""The whole bench: all scenarios, judged, and what follows from them as one tree of plain values."""

from __future__ import annotations

from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from isaac_appo.bench import machine
from isaac_appo.bench.load import Limits, other_load_now, other_load_warning, reject
from isaac_appo.bench.problem import Problem, describe_problem
from isaac_appo.bench.ratios import Spread, bound, overlaps, paired
from isaac_appo.bench.rounds import Plan, Record, run_rounds, shortage
from isaac_appo.bench.scenario import Scenario, parse_scenario, run_block
from isaac_appo.bench.window import STAGES, Block, Effort
from isaac_appo.config import RunConfig

SCHEMA = 1
"""Version of the JSON file."""
SOLO_WARMUP = 1


class Settings(NamedTuple):
    """How to measure."""

    plan: Plan
    effort: Effort
    limits: Limits = Limits()
    solo_updates: int = 20


Times = Dict[str, Dict[int, float]]
"""Scenario -> round -> seconds per update, accepted blocks only."""


def run_suite(
    config: RunConfig, names: Sequence[str], settings: Settings, say: Callable[[str], None] = lambda text: None
) -> Dict[str, Any]:
    """Measure ``names``; returns the report. ``report["failed"]`` says why it is worth nothing, or is empty."""
    scenarios = {name: parse_scenario(name) for name in names}
    warnings = [other_load_warning(other_load_now(), settings.limits)]
    problem = Problem(config)
    try:
        warnings += _leave_out_impossible(problem, scenarios)
        for warning in filter(None, warnings):
            say(f"warning: {warning}")

        def block_of(scenario: Scenario) -> Callable[[], Block]:
            solo = Effort(SOLO_WARMUP, settings.solo_updates)
            return lambda: run_block(problem, scenario, settings.effort if scenario.trains else solo)

        def judge(name: str, block: Block) -> str:
            return reject(block.load, scenarios[name].one_core, settings.limits)

        runs = {name: block_of(scenario) for name, scenario in scenarios.items()}
        records = run_rounds(runs, judge, settings.plan, say)
    finally:
        problem.close()
    report = evaluate(scenarios, records, problem.rows, machine.cores())
    return {
        "schema": SCHEMA,
        "failed": shortage(records, settings.plan),
        "warnings": [warning for warning in warnings if warning],
        "problem": describe_problem(config),
        "machine": machine.describe(),
        "settings": {
            "plan": settings.plan._asdict(),
            "effort": settings.effort._asdict(),
            "solo_updates": settings.solo_updates,
            "limits": settings.limits._asdict(),
        },
        **report,
    }


def _leave_out_impossible(problem: Problem, scenarios: Dict[str, Scenario]) -> List[str]:
    """Drop what cannot run on this problem, and say so."""
    checks: Dict[str, Callable[[], Any]] = {"raw": problem.tape, "rl_games": problem.rl_games_params}
    reasons = []
    for kind, check in checks.items():
        if any(scenario.kind == kind for scenario in scenarios.values()):
            try:
                check()
            except ValueError as error:
                reasons.append(f"left out {kind}: {error}")
                for name in [name for name, scenario in scenarios.items() if scenario.kind == kind]:
                    del scenarios[name]
    return reasons


def evaluate(scenarios: Mapping[str, Scenario], records: Mapping[str, Record], rows: int, cores: int) -> Dict[str, Any]:
    """Everything that is computed from the blocks."""
    times: Times = {name: {r: b.update_s for r, b in record.accepted.items()} for name, record in records.items()}
    fps = {name: _fps(times[name], rows) for name in times}
    return {
        "scenarios": {name: _summary(scenarios[name], records[name], fps[name], rows) for name in records},
        "overlap": _overlap(scenarios, times, fps, rows, cores),
        "comparisons": _comparisons(scenarios, times, fps),
        "blocks": {name: _raw_blocks(record) for name, record in records.items()},
    }


def _fps(times: Mapping[int, float], rows: int) -> Optional[Spread]:
    return Spread.of([rows / seconds for seconds in times.values()]) if times else None


def _plain(spread: Optional[Spread]) -> Optional[Dict[str, Any]]:
    return None if spread is None else dict(spread._asdict())


def _summary(scenario: Scenario, record: Record, fps: Optional[Spread], rows: int) -> Dict[str, Any]:
    blocks = list(record.accepted.values())
    staged = [block.stages for block in blocks if block.stages is not None]
    stages = {k: Spread.of([s[k] / rows for s in staged]).median for k in STAGES} if staged else None
    total = Spread.of([b.load.cpu_s / b.updates / rows for b in blocks]) if blocks else None
    return {
        "what": scenario.what,
        "threads": scenario.threads._asdict(),
        "trains": scenario.trains,
        "fps": _plain(fps),
        "update_s": _plain(Spread.of([b.update_s for b in blocks]) if blocks else None),
        "core_s_per_sample": _plain(total),
        "core_s_per_sample_by_stage": stages,
        "accepted": len(blocks),
        "rejected": [{"round": r, "reason": reason} for r, (reason, _) in record.rejected.items()],
    }


def _raw_blocks(record: Record) -> List[Dict[str, Any]]:
    every = {**record.accepted, **{r: block for r, (_, block) in record.rejected.items()}}
    return [
        {
            "round": r,
            "accepted": r in record.accepted,
            "updates": block.updates,
            "update_s": block.update_s,
            **block.load._asdict(),
            "stages": block.stages,
        }
        for r, block in sorted(every.items())
    ]


def _best(names: Sequence[str], fps: Mapping[str, Optional[Spread]]) -> Optional[str]:
    """The fastest by median, of those that have any."""
    medians = {name: spread.median for name in names for spread in [fps[name]] if spread is not None}
    return max(medians, key=medians.__getitem__) if medians else None


def _of_kind(scenarios: Mapping[str, Scenario], kind: str) -> List[str]:
    return [name for name, scenario in scenarios.items() if scenario.kind == kind]


def _overlap(
    scenarios: Mapping[str, Scenario], times: Times, fps: Mapping[str, Optional[Spread]], rows: int, cores: int
) -> Dict[str, Any]:
    """S, O, H, R and the bound of every overlapped scenario whose two phases were measured at its own threads."""
    found: Dict[str, Any] = {}
    best_sim = _best(_of_kind(scenarios, "sim"), fps)
    for name in _of_kind(scenarios, "lockstep"):
        t = scenarios[name].threads
        collect, learn, sim = f"collect_{t.policy}", f"learn_{t.learner}", f"sim_{t.physics}"
        if not times.get(collect) or not times.get(learn) or not times.get(name):
            continue
        least = bound(Spread.of([*times[collect].values()]).median, Spread.of([*times[learn].values()]).median,
                      cores, t.policy, t.learner)  # fmt: skip
        found[name] = {
            **{key: _plain(spread) for key, spread in overlaps(times, collect, learn, name).items()},
            "R": _plain(paired(times, (sim, name), lambda s, a: s / a)),
            "R_best_sim": _plain(paired(times, (best_sim, name), lambda s, a: s / a)) if best_sim else None,
            "bound": {"update_s": least.update_s, "fps": rows / least.update_s, "by": least.by},
            "share_of_bound": _plain(paired(times, (name,), lambda a, u=least.update_s: u / a)),
        }
    return found


def _comparisons(
    scenarios: Mapping[str, Scenario], times: Times, fps: Mapping[str, Optional[Spread]]
) -> Dict[str, Any]:
    """Speed of each lockstep against the best of others, round by round, and of sim against raw physics."""
    found: Dict[str, Any] = {}
    for lockstep in _of_kind(scenarios, "lockstep"):
        for kind in ("sync", "rl_games"):
            other = _best(_of_kind(scenarios, kind), fps)
            ratio = _plain(paired(times, (other, lockstep), lambda o, a: o / a)) if other else None
            if ratio:
                found[f"{lockstep} / best {kind}"] = {"of": lockstep, "to": other, **ratio}
    for sim in _of_kind(scenarios, "sim"):
        raw = f"raw_{scenarios[sim].threads.physics}"
        ratio = _plain(paired(times, (raw, sim), lambda r, s: r / s)) if times.get(raw) else None
        if ratio:
            found[f"{sim} / {raw}"] = {"of": sim, "to": raw, **ratio}
    return found
