"""``isaac-appo topology``: roles, queue contracts, produced samples and lag, of a design or of a run."""

from __future__ import annotations

import argparse
import json
import re
import sys
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

from isaac_appo.config.errors import ConfigError, Finding
from isaac_appo.topology import contract, estimate, responsibilities
from isaac_appo.topology.document import read_mapping
from isaac_appo.topology.estimate import LagPrediction, Topology
from isaac_appo.topology.responsibilities import Verdict

_FLAGS: Tuple[Tuple[str, int, str], ...] = (
    ("rollout_workers", 2, "workers that step environments"),
    ("policy_workers", 1, "workers that choose actions"),
    ("learners", 1, "learners of the policy: one"),
    ("envs_per_worker", 4, "environments of a rollout worker"),
    ("trajectory_length", 8, "env steps of a trajectory"),
    ("learner_batch_size", 32, "samples that one update consumes"),
)
_OF_A_RUN = {
    "rollout_workers": "schedule.num_workers={}",
    "policy_workers": "schedule.num_workers={}",
    "trajectory_length": "train.params.config.horizon_length={}",
}
_DOCS = """
with KEY=VALUE words, as train takes them, the numbers are those of that run, and its lag is predicted:
  isaac-appo topology task=Ant schedule=free schedule.max_policy_lag=2
"""


class Run(NamedTuple):
    """What a run's configuration adds to a design."""

    title: str
    prediction: LagPrediction


def main(argv: List[str]) -> int:
    """Print the topology; exit code 2 if the design or the command line is refused."""
    options = _parser().parse_intermixed_args(argv)
    topology, run = _of_run(options) if options.overrides or options.config_dir else (_of_flags(options), None)
    given = read_mapping(options.responsibilities, "--responsibilities") if options.responsibilities else {}
    verdict = responsibilities.check(given)
    if options.json:
        print(json.dumps(_as_json(topology, run, given, verdict), indent=2))
    elif not verdict.violations:
        print("\n".join(_lines(topology, run, given, verdict)))
    if verdict.violations:
        count = f"{len(verdict.violations)} violation{'s' * (len(verdict.violations) > 1)} of the contract"
        head = f"isaac-appo topology: the design is rejected, {count}:"
        print("\n  ".join([head, *map(str, verdict.violations)]), file=sys.stderr)
        return 2
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="isaac-appo topology",
        description="Roles, queue contracts, produced samples and policy lag of an asynchronous design or of a run.",
        epilog=_DOCS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="a run's configuration")
    for name, default, text in _FLAGS:
        parser.add_argument(_flag(name), metavar="N", help=f"{text} (default {default})")
    parser.add_argument("--responsibilities", metavar="FILE", help="YAML or JSON: component -> responsibilities")
    parser.add_argument("--config-dir", metavar="DIR", help="folder with your own task/ and train/")
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _of_flags(options: argparse.Namespace) -> Topology:
    values, errors = _given(options)
    if errors:
        raise ConfigError(errors)
    n = {**{name: default for name, default, _ in _FLAGS}, **values}
    return Topology(**n, num_envs=n["rollout_workers"] * n["envs_per_worker"])


def _of_run(options: argparse.Namespace) -> Tuple[Topology, Run]:
    from isaac_appo.commands.compose import compose  # Hydra takes a moment

    values, errors = _given(options)
    words = [*options.overrides, *(["--config-dir", options.config_dir] if options.config_dir else [])]
    config = compose(words, "topology").config
    topology = estimate.topology_of(config)
    for name, value in values.items():  # flags that say something else than the run's configuration
        actual = getattr(topology, name)
        if value != actual:
            fix = f"Write {_OF_A_RUN[name].format(value)}" if name in _OF_A_RUN else "Leave it out"
            errors.append(Finding(_flag(name), value, f"the run's configuration makes it {actual}", fix))
    if errors:
        raise ConfigError(errors)
    title = f"{config.task.name}, {config.num_envs} envs, schedule={config.schedule.name}"
    return topology, Run(title, estimate.predict(config))


def _given(options: argparse.Namespace) -> Tuple[Dict[str, int], List[Finding]]:
    """The numbers that were typed, and what is wrong with them."""
    values: Dict[str, int] = {}
    errors: List[Finding] = []
    for name, default, _ in _FLAGS:
        text, flag = getattr(options, name), _flag(name)
        if text is None:
            continue
        if not re.fullmatch(r"\+?\d+", text) or int(text) < 1:
            errors.append(Finding(flag, text, "must be a whole number of at least 1", f"Use {flag} {default}"))
        elif name == "learners" and int(text) > 1:
            rule = "a policy has one learner: a second would consume its trajectories and change its parameters too"
            errors.append(Finding(flag, text, rule, "Use --learners 1, and another run for another policy"))
        else:
            values[name] = int(text)
    return values, errors


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def _as_json(topology: Topology, run: Optional[Run], given: Dict[str, Any], verdict: Verdict) -> Dict[str, Any]:
    return {
        "accepted": not verdict.violations,
        **topology._asdict(),
        "produced_samples": topology.produced_samples(),
        "lag_pressure": topology.lag_pressure(),
        "roles": [role._asdict() for role in contract.ROLES],
        "queues": [dict(zip(("name", "producer", "consumer", "payload", "here"), q)) for q in contract.QUEUES],
        "limitation": contract.LIMITATION,
        "responsibilities": given,
        "violations": [{"component": f.path, "responsibility": f.value, "rule": f.rule} for f in verdict.violations],
        "unchecked": verdict.unchecked,
        **({"run": {"title": run.title, "lag": run.prediction._asdict()}} if run else {}),
    }


def _lines(topology: Topology, run: Optional[Run], given: Dict[str, Any], verdict: Verdict) -> List[str]:
    lines = [f"Topology of {run.title}" if run else "Topology", "", "Components"]
    counts = {contract.ROLLOUT: topology.rollout_workers, contract.POLICY: topology.policy_workers}
    for role in contract.ROLES:
        count = counts.get(role.component, topology.learners)
        head = f"  {count} x {role.component}: {role.summary}"
        lines += [head, f"      does   {'; '.join(role.duties)}", f"      never  {'; '.join(role.never)}"]
    lines += ["", "Queues (messages are indices, never observations or trajectories)"]
    for q in contract.QUEUES:
        lines += [f"  {q.name}: {q.producer} -> {q.consumer}, {q.payload}", f"      here   {q.here}"]
    lines += ["", *_numbers(topology), *(_lag_lines(run.prediction) if run else [])]
    if given:
        lines += ["", f"Responsibilities of {', '.join(given)}: none breaks the contract"]
        lines += [f"  unchecked, no rule speaks about it: {text}" for text in verdict.unchecked]
    return [*lines, "", f"Limitation: {contract.LIMITATION}"]


def _numbers(t: Topology) -> List[str]:
    workers = f"{t.rollout_workers} worker{'s' * (t.rollout_workers > 1)} x {t.envs_per_worker} envs"
    if t.num_envs != t.rollout_workers * t.envs_per_worker:
        workers = f"{t.num_envs} envs in {t.rollout_workers} shards of {t.envs_per_worker} or one less"
    return [
        "Estimates",
        f"  produced samples per rollout iteration: {t.produced_samples():,} ({workers} x {t.trajectory_length} steps)",
        f"  learner batch: {t.learner_batch_size:,} samples",
        f"  policy-lag pressure, max(0, produced / batch - 1): {t.lag_pressure():.3g}",
    ]


def _lag_lines(p: LagPrediction) -> List[str]:
    if p.mean is not None:
        span, sgd, mean = f"exactly {p.low}", f"{p.low * p.sgd_steps}", f"mean {p.mean:g}"
    else:
        span, sgd = f"{p.low}..{p.high}", f"{p.low}..{p.high * p.sgd_steps}"
        mean = f"a mean within {span} that threads decide"
    return [
        "",
        f"Predicted lag of the rows that are trained on, from update {p.high} on (update u before that: at most u)",
        f"  {span} updates ({sgd} SGD steps), {mean}",
        f"  {p.law}",
    ]
