"""``isaac-appo bench``: what this machine gives, what training takes of it, and how that compares."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple

from isaac_appo.commands.compose import compose
from isaac_appo.config.errors import ConfigError, Finding

if TYPE_CHECKING:
    from isaac_appo.bench.suite import Settings
    from isaac_appo.config import RunConfig

DEFAULT_PROBLEM = ("num_envs=1024", "train.params.config.minibatch_size=4096")
"""Of a bench whose words name no task: Ant."""


def parser() -> argparse.ArgumentParser:
    """The options; what else is given are Hydra overrides, as for ``train``."""
    p = argparse.ArgumentParser(
        prog="isaac-appo bench", allow_abbrev=False, usage="isaac-appo bench [OPTION ...] [KEY=VALUE ...]",
        description="Measures simulation, collecting, learning, training in turns, overlapped training, rl_games, in "
        "interleaved blocks. KEY=VALUE as for train; without task= it is Ant, 1024 envs, minibatches of 4096.",
    )  # fmt: skip
    p.add_argument("--quick", action="store_true", help="two minutes: fewer scenarios, shorter blocks")
    p.add_argument("--scenarios", metavar="A,B", help="only these; see the table in the report for names")
    p.add_argument("--minutes", type=float, help="budget (default 10, --quick 1.7, --growth 9.5)")
    p.add_argument("--updates", type=int, help="updates per block (default 20, --quick 4)")
    p.add_argument("--order-seed", type=int, default=0, help="seed of the order of blocks")
    p.add_argument("--out", type=Path, help="folder of the report (default bench/NAME)")
    gpu = "everything about one GPU within 8 minutes, whatever KEY=VALUE says"
    p.add_argument("--gpu", action="store_true", help=gpu)
    p.add_argument("--growth", action="store_true", help="how time and memory grow with envs, horizon and width")
    p.add_argument("--time-to-return", type=float, metavar="R", help="race rl_games to this evaluation return")
    p.add_argument("--ablation", metavar="TASKS", help="what lag costs in samples: Cartpole, Ant or both, resumable")
    p.add_argument("--seeds", default="1,2,3", help="of the race")
    p.add_argument("--every", type=int, default=10, help="updates between the evaluations of the race")
    return p


def main(argv: List[str]) -> int:
    """Run one bench; 1 if it is worth nothing (its report says why), 2 if it was asked for wrongly."""
    options, words = parser().parse_known_args(argv)
    if options.ablation:
        return _ablation(options)
    if options.gpu:
        return _gpu(options)
    words = with_default_problem(words)
    composed = compose(words, "bench")
    if composed.config.sim.name == "isaacgym":
        rule = "a bench makes many simulations in one process, and Isaac Gym makes one"
        raise ConfigError([Finding("sim", "isaacgym", rule, "Use sim=auto; train reports the speed of every run")])
    from isaac_appo.build import choose_engine
    from isaac_appo.sim.engine import EngineError
    from isaac_appo.tasks.registry import TaskError

    _say(f"Engine: {choose_engine(composed.config)}")
    for warning in composed.warnings:
        _say(f"warning: {warning}")
    try:
        report, folder = _measure(options, words, composed.config)
    except (EngineError, TaskError, ValueError) as error:
        print(f"isaac-appo bench: {error}", file=sys.stderr)
        return 2
    _say(f"Report: {folder}")
    if report["failed"]:
        print(f"isaac-appo bench: {report['failed']}", file=sys.stderr)
        return 1
    return 0


def with_default_problem(words: List[str]) -> List[str]:
    """The overrides that are typed, after those of the default problem that they do not decide themselves."""
    keys = {word.partition("=")[0].lstrip("+") for word in words}
    mine = () if "task" in keys else DEFAULT_PROBLEM
    return [word for word in mine if word.partition("=")[0] not in keys] + words


def _measure(options: argparse.Namespace, words: List[str], config: RunConfig) -> Tuple[Dict[str, Any], Path]:
    """What the options ask for; its report is written (JSON, Markdown, a figure) and printed. Raises OSError."""
    from isaac_appo.bench import figure, files, growth, race
    from isaac_appo.bench.problem import describe_problem
    from isaac_appo.report.atomic_file import write_json, write_text

    draw: Callable[[Mapping[str, Any], Path], None]
    if options.growth:
        report = growth.run_growth(words, describe_problem(config), 60.0 * (options.minutes or 9.5), _say)
        name, markdown, draw = "_growth", growth.growth_markdown(report), figure.growth_figure
    elif options.time_to_return is not None:
        name, report, draw = f"_return_{options.time_to_return:g}", _race(options, words), figure.race_figure
        markdown = race.race_markdown(report)
    else:
        name, report, draw = "_quick" * options.quick, _suite(options, words, config), figure.suite_figure
        markdown = files.suite_markdown(report)
    folder = options.out or Path("bench") / f"{config.task.name}_{config.num_envs}x{config.ppo.horizon_length}{name}"
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / "report.json", {**report, "overrides": words})
    write_text(folder / "report.md", markdown)
    draw(report, folder / "report.png")
    print(markdown)
    return report, folder


def suite_settings(quick: bool, minutes: Optional[float], updates: Optional[int], seed: int) -> Settings:
    """Budget and effort from the options."""
    from isaac_appo.bench.rounds import Plan
    from isaac_appo.bench.suite import Settings
    from isaac_appo.bench.window import Effort

    budget_s = 60.0 * (minutes or (1.7 if quick else 10.0))
    return Settings(Plan(budget_s, seed=seed), Effort(2, updates or (4 if quick else 20)))


def _suite(options: argparse.Namespace, words: List[str], config: RunConfig) -> Dict[str, Any]:
    from isaac_appo.bench.probe import ProbeError
    from isaac_appo.bench.scenario import default_scenarios
    from isaac_appo.bench.suite import run_suite
    from isaac_appo.budgets import available_cores

    names = default_scenarios(available_cores(), options.quick)
    if options.scenarios:
        names = [name for name in options.scenarios.split(",") if name]
    settings = suite_settings(options.quick, options.minutes, options.updates, options.order_seed)
    report = run_suite(config, names, settings, _say)
    if not options.quick:
        try:
            report["memory"] = _memory(words, report["scenarios"])
        except ProbeError as error:  # what was measured so far is worth keeping
            report["warnings"].append(f"no peak memory: {error}")
    return report


def _memory(words: List[str], scenarios: Dict[str, Any]) -> Dict[str, float]:
    """Peak memory of each overlapped scenario and of rl_games, each in a process of its own."""
    from isaac_appo.bench.probe import Request, probe
    from isaac_appo.bench.window import Effort

    names = [name for name in scenarios if name.startswith("lockstep")]
    names += [name for name in scenarios if name.startswith("rl_games")][:1]
    _say(f"peak memory of {', '.join(names)}")
    return {name: float(probe(Request(words, [name], Effort(1, 3)))["peak_mib"]) for name in names}


def _ablation(options: argparse.Namespace) -> int:
    from isaac_appo.bench import ablation

    known, names = ablation.suites(), [name for name in options.ablation.split(",") if name]
    unknown = [name for name in names if name not in known]
    if unknown:
        print(f"isaac-appo bench: --ablation {unknown[0]}: there are {', '.join(known)}", file=sys.stderr)
        return 2
    folder, chosen = options.out or Path("bench") / "ablation", [known[name] for name in names]
    runs = ablation.run_ablation(chosen, folder, 60.0 * (options.minutes or 60.0), _say)
    markdown = ablation.ablation_markdown(runs, list(known.values()))
    (folder / "report.md").write_text(markdown + "\n", encoding="utf-8")
    ablation.draw_ablation(runs, list(known.values()), folder / "report.png")
    print(markdown)
    return 0


def _gpu(options: argparse.Namespace) -> int:
    import torch

    from isaac_appo.bench.gpu import BUDGET_S, GpuBench

    if not torch.cuda.is_available():
        print("isaac-appo bench: --gpu: PyTorch finds no CUDA GPU. Run it where there is one", file=sys.stderr)
        return 2
    torch.set_float32_matmul_precision("high")  # as train has it on a GPU
    folder = options.out or Path("bench") / ("gpu" + "_quick" * options.quick)
    words = ["sim=mujoco_warp", "sim_device=cuda:0"]
    bench = GpuBench(folder, "quick" if options.quick else "full", words=words, say=_say)
    report = bench.run(60.0 * options.minutes if options.minutes else BUDGET_S)
    print((folder / "report.md").read_text(encoding="utf-8"))
    _say(f"Report: {folder}")
    return 0 if report["stages"] else 1


def _race(options: argparse.Namespace, words: List[str]) -> Dict[str, Any]:
    from isaac_appo.bench.race import Race, run_race
    from isaac_appo.budgets import available_cores

    try:
        seeds = [int(word) for word in options.seeds.split(",")]
    except ValueError:
        raise ValueError(f"--seeds {options.seeds}: whole numbers between commas. Write --seeds 1,2,3") from None
    configs = [compose([*words, f"seed={seed}"], "bench").config for seed in seeds]
    return run_race(configs, Race(options.time_to_return, options.every, available_cores()), _say)


_say = partial(print, flush=True)
