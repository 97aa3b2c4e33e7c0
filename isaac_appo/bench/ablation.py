"""What lag costs in samples: {GAE, V-trace} x {decoupled, behaviour} x lag, paired by seed with synchronous PPO.

Every run is one line of ``runs.jsonl``, written when it ends; a run whose line is there is not repeated, so that the
command may be stopped and given again. At lag 0 all settings are the same program, bit for bit: one run per seed stands
for all of them.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from isaac_appo.bench.files import table
from isaac_appo.budgets import available_cores, measure_update, resolve_budgets
from isaac_appo.build import build_program, build_workers, learner_settings, model_maker, pipeline_settings
from isaac_appo.commands.compose import compose
from isaac_appo.config.schema import AdvantageConfig
from isaac_appo.meter import Meter
from isaac_appo.schedule.pipeline import Pipeline, UpdateReport

CURVE_POINTS = 100
BOOTSTRAPS = 10_000


class Setting(NamedTuple):
    """One cell of the ablation."""

    advantage: str
    loss: str
    lag: int

    def __str__(self) -> str:
        return "sync" if self.lag == 0 else f"lag {self.lag}, {self.advantage}, {self.loss}"


ONE_CORE = ["schedule.executor=inline", "schedule.policy_threads=1", "schedule.learner_threads=1"]
"""The same numbers on every machine, whatever its cores; and two suites may run side by side."""

SYNC = Setting("gae", "decoupled", 0)


class Suite(NamedTuple):
    """A problem, the training mean that counts as learnt, and how often it is repeated."""

    name: str
    overrides: List[str]
    target: float
    stop_at_target: bool
    seeds: Tuple[int, ...]
    settings: List[Setting]
    more_seeds: Tuple[int, ...] = ()
    """Further repetitions of the default loss at the least and the greatest lag, where what is claimed lies."""


def suites() -> Dict[str, Suite]:
    """Cartpole with everything; Ant for 3 million steps with the default loss."""
    both = ("gae", "vtrace")
    small = [Setting(a, loss, lag) for lag in (1, 2, 4) for a in both for loss in ("decoupled", "behaviour")]
    large = [Setting(a, "decoupled", lag) for lag in (1, 4) for a in both]
    seeds = (1, 2, 3, 4, 5)
    ant = ["num_envs=1024", "train.params.config.minibatch_size=4096", f"max_iterations={3_000_000 // 16_384}"]
    return {
        "Cartpole": Suite("Cartpole", ["max_iterations=300"], 400.0, True, seeds, [SYNC, *small], tuple(range(6, 21))),
        "Ant": Suite("Ant", ant, 1500.0, False, (1, 2, 3), [SYNC, *large], (4, 5, 6)),
    }


def run_ablation(
    chosen: Sequence[Suite], folder: Path, budget_s: float, say: Callable[[str], None] = lambda text: None
) -> List[Dict[str, Any]]:
    """Run what ``folder/runs.jsonl`` does not hold yet, as far as the budget goes; return every run there is.

    V-trace runs with other caps than the default's are no part of it.
    """
    path = folder / "runs.jsonl"
    folder.mkdir(parents=True, exist_ok=True)
    deadline = time.perf_counter() + budget_s
    runs = [r for r in read_runs(path) if r["advantage"] == "gae" or r.get("c_bar") == AdvantageConfig().c_bar]
    done = {(r["task"], Setting(r["advantage"], r["loss"], r["lag"]), r["seed"]) for r in runs}
    for suite, seed, setting in _order(chosen):
        if (suite.name, setting, seed) in done:
            continue
        if time.perf_counter() > deadline:
            say("The budget is spent: give the command again to go on from here.")
            break
        runs.append(run_one(suite, setting, seed))
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(runs[-1]) + "\n")
        samples, reached = runs[-1]["samples"], runs[-1]["reached"]
        say(
            f"{suite.name}, {setting}, seed {seed}: {samples:,} samples, reached {reached}, {runs[-1]['seconds']:.0f} s"
        )
    return runs


def _order(chosen: Sequence[Suite]) -> Iterator[Tuple[Suite, int, Setting]]:
    """Seed by seed, so that what there is can be paired whenever the command is stopped."""
    for suite in chosen:
        for seed in suite.seeds:
            for setting in suite.settings:
                yield suite, seed, setting
        claimed = [s for s in suite.settings if s.loss == "decoupled" and s.lag in (0, 1, 4)]
        yield from ((suite, seed, setting) for seed in suite.more_seeds for setting in claimed)


def read_runs(path: Path) -> List[Dict[str, Any]]:
    """The runs of a ``runs.jsonl``; a last line that was cut off by a kill is left out, and so run again."""
    if not path.exists():
        return []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    whole = [line for line in lines if line.endswith("\n")]
    if len(whole) < len(lines):
        path.write_text("".join(whole), encoding="utf-8")
    return [json.loads(line) for line in whole]


def run_one(suite: Suite, setting: Setting, seed: int) -> Dict[str, Any]:
    """Train once; ``samples`` is where the training mean first reached the target, or all of them if it never did."""
    words = [f"task={suite.name}", *suite.overrides, f"seed={seed}", f"schedule.lag={setting.lag}"]
    words += [f"advantage={setting.advantage}", f"loss={setting.loss}", *ONE_CORE]
    config, _ = resolve_budgets(compose(words, "bench").config, None, measure_update, available_cores())
    envs, learner = build_workers(config, ""), learner_settings(config)
    make_model = model_maker(config, envs[0].num_obs, envs[0].num_actions)
    curve: List[Tuple[int, float]] = []
    reached: List[int] = []

    def on_boundary(report: UpdateReport) -> None:
        meter.episodes.extend(report.episodes)
        samples = (report.update + 1) * pipeline.ledger.rows
        curve.append((samples, meter.mean_reward))
        full = len(meter.episodes) == meter.episodes.maxlen  # the first few episodes are the short ones
        if full and not reached and meter.mean_reward >= suite.target:
            reached.append(samples)
            if suite.stop_at_target:
                pipeline.stop()

    program = build_program(config, learner.minibatches)
    pipeline = Pipeline(envs, make_model, program, pipeline_settings(config), learner, on_boundary)
    meter = Meter(config, pipeline)
    started = time.perf_counter()
    pipeline.run()
    for env in envs:
        env.close()
    every = max(1, len(curve) // CURVE_POINTS)
    return {
        "task": suite.name,
        **setting._asdict(),
        "c_bar": config.advantage.c_bar,
        "seed": seed,
        "target": suite.target,
        "samples": reached[0] if reached else curve[-1][0],
        "reached": bool(reached),
        "final": curve[-1][1],
        "seconds": time.perf_counter() - started,
        "curve": [[s, round(r, 2)] for s, r in curve[::every] if math.isfinite(r)],
    }


class Ratio(NamedTuple):
    """Geometric mean over seeds of samples(setting) / samples(other), with a 95 % bootstrap interval."""

    mean: float
    low: float
    high: float
    seeds: int
    unreached: int

    def __str__(self) -> str:
        return f"{self.mean:.2f} ({self.low:.2f} to {self.high:.2f})"


def paired_ratio(runs: Sequence[Dict[str, Any]], task: str, setting: Setting, other: Setting = SYNC) -> Optional[Ratio]:
    """The ratio over the seeds that have both runs; ``None`` if no seed has."""
    found = {(r["seed"], Setting(r["advantage"], r["loss"], r["lag"])): r for r in runs if r["task"] == task}
    seeds = sorted(seed for seed, s in found if s == setting and (seed, other) in found)
    if not seeds:
        return None
    logs = np.array([math.log(found[s, setting]["samples"] / found[s, other]["samples"]) for s in seeds])
    draws = np.random.default_rng(0).choice(logs, (BOOTSTRAPS, len(logs))).mean(1)
    low, high = np.exp(np.percentile(draws, [2.5, 97.5]))
    unreached = sum(not found[s, setting]["reached"] for s in seeds)
    return Ratio(float(np.exp(logs.mean())), float(low), float(high), len(seeds), unreached)


def ablation_markdown(runs: Sequence[Dict[str, Any]], chosen: Sequence[Suite]) -> str:
    """One table per problem."""
    parts = [
        "# Samples to reward, against synchronous PPO",
        "",
        "Geometric mean of ratios paired by seed, 95 % interval. A run that missed its target counts with all it took.",
    ]
    for suite in chosen:
        rows = []
        for setting in suite.settings[1:]:
            r = paired_ratio(runs, suite.name, setting)
            if r is not None:
                cells = [str(setting.lag), setting.advantage, setting.loss, str(r), str(r.seeds), str(r.unreached)]
                other = paired_ratio(runs, suite.name, setting, setting._replace(advantage="gae"))
                rows.append([*cells, str(other) if setting.advantage != "gae" and other else ""])
        head = ["lag", "advantage", "loss", "samples / sync", "seeds", "target not reached", "samples / gae"]
        title = f"## {suite.name}, to a training mean of {suite.target:g}"
        parts += ["", title, "", table(head, rows) if rows else "Not measured."]
    return "\n".join(parts)


def draw_ablation(runs: Sequence[Dict[str, Any]], chosen: Sequence[Suite], png: Path) -> None:
    """Ratio against lag with its interval, one panel per problem, one line per setting."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(chosen), figsize=(6.5 * len(chosen), 4.5), dpi=150, squeeze=False)
    for axis, suite in zip(axes[0], chosen):
        kinds = sorted({(s.advantage, s.loss) for s in suite.settings[1:]})
        for offset, (advantage, loss) in enumerate(kinds):
            lags = sorted({s.lag for s in suite.settings[1:]})
            found = [(lag, paired_ratio(runs, suite.name, Setting(advantage, loss, lag))) for lag in lags]
            points = [(lag + 0.06 * (offset - len(kinds) / 2), r) for lag, r in found if r is not None]
            if points:
                mean = [r.mean for _, r in points]
                error = [[r.mean - r.low for _, r in points], [r.high - r.mean for _, r in points]]
                x = [at for at, _ in points]
                axis.errorbar(x, mean, yerr=error, marker="o", capsize=3, label=f"{advantage}, {loss}")
        axis.axhline(1.0, color="0.6", linewidth=1, linestyle="--")
        axis.set(xlabel="lag (updates)", ylabel="samples to reward / sync", title=suite.name)
        if axis.get_legend_handles_labels()[0]:
            axis.legend(frameon=False)
    figure.tight_layout()
    figure.savefig(png)
    pyplot.close(figure)
