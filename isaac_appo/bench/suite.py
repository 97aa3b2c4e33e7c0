"""The whole bench: all scenarios, judged, and what follows from them as one tree of plain values."""

from __future__ import annotations

from functools import partial
from statistics import median
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Sequence

from isaac_appo.bench import machine
from isaac_appo.bench.load import Limits, other_load_now, other_load_warnings, reject
from isaac_appo.bench.problem import Problem, describe_problem
from isaac_appo.bench.ratios import Spread, bound, overlaps, paired
from isaac_appo.bench.rounds import Plan, Records, accepted, run_rounds, shortage
from isaac_appo.bench.scenario import Scenario, parse_scenario, run_block
from isaac_appo.bench.window import STAGES, Block, Effort
from isaac_appo.budgets import available_cores
from isaac_appo.config import RunConfig


class Settings(NamedTuple):
    """How to measure. Scenarios that do not train need one update only to warm up."""

    plan: Plan
    effort: Effort
    limits: Limits = Limits()


Times = Dict[str, Dict[int, float]]
"""Scenario -> round -> seconds per update, accepted blocks only."""


def run_suite(
    config: RunConfig, names: Sequence[str], settings: Settings, say: Callable[[str], None] = lambda text: None
) -> Dict[str, Any]:
    """Measure ``names``; returns the report. ``report["failed"]`` says why it is worth nothing, or is empty."""
    scenarios = {name: parse_scenario(name) for name in names}
    plan, effort, limits = settings
    warnings = other_load_warnings(other_load_now(), limits)
    solo = Effort(1, effort.updates)

    def judge(name: str, block: Block) -> str:
        return reject(block.load, scenarios[name].one_core, limits)

    problem = Problem(config)
    try:
        warnings += _leave_out_impossible(problem, scenarios)
        for warning in warnings:
            say(f"warning: {warning}")
        blocks = {name: partial(run_block, problem, s, effort if s.trains else solo) for name, s in scenarios.items()}
        records = run_rounds(blocks, judge, plan, say)
    finally:
        problem.close()
    how = {"plan": plan._asdict(), "effort": effort._asdict(), "limits": limits._asdict()}
    return {
        "schema": 1,  # version of this tree
        "failed": shortage(records, plan),
        "warnings": warnings,
        "problem": describe_problem(config),
        "machine": machine.describe(),
        "settings": {**how, "solo_updates": solo.updates},
        **evaluate(scenarios, records, problem.rows, available_cores()),
    }


def _leave_out_impossible(problem: Problem, scenarios: Dict[str, Scenario]) -> List[str]:
    """Drop what cannot run on this problem, and say so."""
    checks: Dict[str, Callable[[], Any]] = {"raw": problem.tape, "rl_games": problem.rl_games_params}
    reasons = []
    for kind, check in checks.items():
        names = _of_kind(scenarios, kind)
        try:
            if names:
                check()
        except ValueError as error:
            reasons.append(f"left out {kind}: {error}")
            for name in names:
                del scenarios[name]
    return reasons


def evaluate(scenarios: Mapping[str, Scenario], records: Records, rows: int, cores: int) -> Dict[str, Any]:
    """Everything that is computed from the blocks."""
    times = {name: {r: b.update_s for r, b in accepted(blocks).items()} for name, blocks in records.items()}
    return {
        "scenarios": {name: _summary(scenarios[name], blocks, rows) for name, blocks in records.items()},
        "overlap": _overlap(scenarios, times, rows, cores),
        "comparisons": _comparisons(scenarios, times),
        "blocks": {name: [_block(r, b) for r, b in enumerate(blocks)] for name, blocks in records.items()},
    }


def _block(number: int, block: Block) -> Dict[str, Any]:
    head = {"round": number, "accepted": not block.rejected, "updates": block.updates, "update_s": block.update_s}
    return {**head, **block.load._asdict(), "stages": block.stages}


def _summary(scenario: Scenario, blocks: Sequence[Block], rows: int) -> Dict[str, Any]:
    good = list(accepted(blocks).values())
    staged = [block.stages for block in good if block.stages is not None]
    return {
        "what": scenario.what,
        "threads": scenario.threads._asdict(),
        "trains": scenario.trains,
        "fps": _spread([rows / b.update_s for b in good]),
        "update_s": _spread([b.update_s for b in good]),
        "core_s_per_sample": _spread([b.load.cpu_s / b.updates / rows for b in good]),
        "core_s_per_sample_by_stage": {k: median(s[k] / rows for s in staged) for k in STAGES} if staged else None,
        "accepted": len(good),
        "rejected": [{"round": r, "reason": b.rejected} for r, b in enumerate(blocks) if b.rejected],
    }


def _spread(values: Sequence[float]) -> Optional[Dict[str, Any]]:
    return dict(Spread.of(values)._asdict()) if values else None


def _ratio(times: Times, of: str, to: Optional[str]) -> Optional[Dict[str, Any]]:
    """How many times as fast ``of`` is, round by round."""
    return _spread(paired(times, (to, of), lambda slow, fast: slow / fast)) if to else None


def _of_kind(scenarios: Mapping[str, Scenario], kind: str) -> List[str]:
    return [name for name, scenario in scenarios.items() if scenario.kind == kind]


def _best(names: Sequence[str], times: Times) -> Optional[str]:
    """The fastest by median, of those that have any."""
    return min((name for name in names if times[name]), key=lambda name: median(times[name].values()), default=None)


def _overlap(scenarios: Mapping[str, Scenario], times: Times, rows: int, cores: int) -> Dict[str, Any]:
    """S, O, H, R and the bound of every overlapped scenario whose two phases were measured at its own threads."""
    found: Dict[str, Any] = {}
    best_sim = _best(_of_kind(scenarios, "sim"), times)
    for name in _of_kind(scenarios, "lockstep"):
        t = scenarios[name].threads
        collect, learn = f"collect_{t.policy}", f"learn_{t.learner}"
        if not (times.get(collect) and times.get(learn) and times[name]):
            continue
        collect_s, learn_s = (median(times[phase].values()) for phase in (collect, learn))
        least, by = bound(collect_s, learn_s, cores, t.policy, t.learner)
        found[name] = {
            **{key: _spread(values) for key, values in overlaps(times, collect, learn, name).items()},
            "R": _ratio(times, name, f"sim_{t.physics}"),
            "R_best_sim": _ratio(times, name, best_sim),
            "bound": {"update_s": least, "fps": rows / least, "by": by},
            "share_of_bound": _spread([least / seconds for seconds in times[name].values()]),
        }
    return found


def _comparisons(scenarios: Mapping[str, Scenario], times: Times) -> Dict[str, Any]:
    """Speed of each lockstep against the best of others, round by round, and of sim against raw physics."""
    pairs = [
        (f"{lockstep} / best {kind}", lockstep, _best(_of_kind(scenarios, kind), times))
        for lockstep in _of_kind(scenarios, "lockstep")
        for kind in ("sync", "rl_games")
    ]
    for sim in _of_kind(scenarios, "sim"):
        raw = f"raw_{scenarios[sim].threads.physics}"
        pairs.append((f"{sim} / {raw}", sim, raw))
    ratios = {title: (of, to, _ratio(times, of, to)) for title, of, to in pairs}
    return {title: {"of": of, "to": to, **ratio} for title, (of, to, ratio) in ratios.items() if ratio}
