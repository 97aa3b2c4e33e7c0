"""``isaac-appo train``: train, resume, and evaluate at the end."""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Dict, List, Optional, Tuple

from isaac_appo.commands.compose import ComposedConfig, before_torch, compose

if TYPE_CHECKING:
    from isaac_appo.evaluation import Evaluation
    from isaac_appo.report.run_dir import RunDir
    from isaac_appo.sim.registry import EngineChoice
    from isaac_appo.supervision import SignalGuard
    from isaac_appo.trainer import Trainer

Loaded = Optional[Tuple[Dict[str, Any], Path]]


def main(argv: List[str]) -> int:
    """Run one training, or with -m a sweep of them; returns the process exit code."""
    if {"-m", "--multirun"} & set(argv) and not {"-h", "--help"} & set(argv):
        from isaac_appo.commands import sweep

        return sweep.main(argv)
    composed = compose(argv, "train")
    before_torch(composed.config)
    # torch, Warp and MuJoCo take seconds to import: a typing error is answered before
    return _test(composed) if composed.config.test else _train(composed)


def _train(composed: ComposedConfig) -> int:
    from isaac_appo.build import choose_engine, place_executor, set_numerics
    from isaac_appo.checkpoint import newest_checkpoint, resolve_resume
    from isaac_appo.report.run_dir import RunDir
    from isaac_appo.report.wandb_sink import wandb_options
    from isaac_appo.supervision import SignalGuard

    engine = choose_engine(composed.config)
    config = place_executor(composed.config, engine, composed.cfg.schedule.executor)
    composed = replace(composed, config=config)
    set_numerics(config, engine.device)
    wandb_options(config)  # a missing package is said before the run directory is touched
    run_dir = RunDir.create(config.run_root, config.task.label, config.experiment, config.seed)
    try:  # in this order, a refusal leaves the directory as it was
        loaded = resolve_resume(config.resume, run_dir.checkpoints)
        run_dir.prepare(config.resume)
        run_dir.write_run_json(engine=engine.name)
    except BaseException:
        run_dir.release()
        raise
    status, code = "failed", 1
    try:
        with SignalGuard(lambda: newest_checkpoint(run_dir.checkpoints)) as guard:
            code = _run(composed, run_dir, engine, guard, loaded)
        status = {0: "complete"}.get(code, "interrupted")
        return code
    finally:
        run_dir.close(status, code)


def _run(composed: ComposedConfig, run_dir: RunDir, engine: EngineChoice, guard: SignalGuard, loaded: Loaded) -> int:
    from isaac_appo.budgets import available_cores, measure_update, resolve_budgets
    from isaac_appo.checkpoint import load_checkpoint, read_best
    from isaac_appo.report.reporter import Reporter, Start
    from isaac_appo.report.wandb_sink import wandb_options
    from isaac_appo.supervision import Watchdog
    from isaac_appo.trainer import Trainer, own_entry

    own = own_entry(loaded[0]) if loaded else None
    config, budgets = resolve_budgets(composed.config, own and own["budgets"], measure_update, available_cores())
    start = Start(int(loaded[0]["epoch"]), int(loaded[0]["frame"]), own["elapsed_s"]) if loaded and own else Start()
    total = config.max_iterations * config.num_envs * config.ppo.horizon_length
    title = f"{config.task.name}, {config.num_envs} envs, {config.schedule.name}, {config.schedule.limit}"
    shown = (config.report.console, config.report.interval, config.report.tensorboard)
    wandb = wandb_options(config)
    with Reporter(run_dir, total, config.max_iterations, *shown, title, start, wandb=wandb) as reporter:
        threads = f"Threads: policy {budgets.policy}, learner {budgets.learner} ({budgets.reason})"
        for line in (f"Run directory: {run_dir.path}", f"Engine: {engine}", threads):
            reporter.message(line)
        for warning in composed.warnings:
            reporter.warn(warning)
        trainer = Trainer(config, run_dir, reporter, lambda: guard.stop_requested)
        try:
            if loaded:
                trainer.resume(loaded[0])
                reporter.message(_resumed(trainer, loaded[1]))
            elif config.checkpoint:
                trainer.load_weights(load_checkpoint(Path(config.checkpoint)))
                reporter.message(f"Weights and statistics taken from {config.checkpoint}")
            run_dir.write_config(composed.annotated(), composed.overrides)
            with Watchdog(run_dir.log_txt, lambda text: _hung(run_dir, text)) as watchdog:
                trainer.run(watchdog.beat)
            evaluation = _evaluate(trainer) if config.eval.enabled and not guard.stop_requested else None
            _draw(trainer, evaluation)
            best = read_best(run_dir.checkpoints)
            kept = best[0] if best else trainer.writer.last_path
            if kept is not None:
                reporter.artifact(kept)
            reporter.summary(_summary(trainer, composed.overrides, evaluation))
        finally:
            trainer.close()
    return guard.exit_code


def _evaluate(trainer: Trainer) -> Evaluation:
    count = trainer.config.num_envs if trainer.shared else trainer.config.eval.num_envs
    trainer.reporter.message(f"Evaluating: one episode in each of {count} environments")
    evaluation = trainer.evaluate()
    trainer.run_dir.write_run_json(evaluation=evaluation._asdict())
    return evaluation


def _draw(trainer: Trainer, evaluation: Optional[Evaluation]) -> None:
    from isaac_appo.report.plots import EvalPoint, reward_curve
    from isaac_appo.report.trace import render

    c, path = trainer.config, trainer.run_dir.trace_json
    if c.report.plot:
        point = EvalPoint(trainer.env_steps, evaluation.mean, evaluation.std) if evaluation else None
        title = f"{c.task.name}, seed {c.seed}"
        reward_curve(trainer.run_dir.metrics_csv, trainer.run_dir.curve_png, title, point)
    if trainer.trace is None:
        return
    trainer.trace.write(path, f"{c.task.name}, {c.num_envs} envs, {c.schedule.name}")
    try:
        render(path, path.with_suffix(".png"))
    except ValueError as error:
        trainer.reporter.warn(f"report.trace: {error}")
    else:
        trainer.reporter.message(f"Timeline: {path} (open it in Perfetto), and as a picture beside it")


def _summary(trainer: Trainer, typed: List[str], evaluation: Optional[Evaluation]) -> List[str]:
    c, run_dir = trainer.config, trainer.run_dir
    ledger = trainer.pipeline.ledger.totals()
    fps = (trainer.env_steps - trainer.resumed_env_steps) / max(trainer.meter.seconds, 1e-9)
    lines = [
        f"Updates:     {trainer.updates} of {c.max_iterations}, {trainer.env_steps:,} env steps in "
        f"{trainer.reporter.elapsed_s:.1f} s, {fps:,.0f} env steps/s of wall clock in this process",
        f"Streams:     {trainer.meter.overlap()}",
        f"Training:    mean return {trainer.meter.mean_reward:.1f} over the last {c.ppo.games_to_track} episodes "
        f"(exploring), mean length {trainer.meter.mean_length:.1f}",
        f"Evaluation:  {evaluation if evaluation is not None else 'not run'}",
        "Rows:        " + ", ".join(f"{name} {rows:,}" for name, rows in ledger.items() if rows),
        f"Checkpoint:  {trainer.writer.last_path}",
        f"Curve:       {run_dir.curve_png}",
    ]
    same = [word for word in typed if not word.startswith(("max_iterations=", "resume="))]
    again = " ".join([_program(), "train", *map(shlex.quote, same), f"max_iterations={_more(trainer)}"])
    return [*lines, f"Resume with: {again}", f"All files:   {run_dir.path}"]


def _more(trainer: Trainer) -> int:
    total = trainer.config.max_iterations
    return total if trainer.updates < total else 2 * total


def _program() -> str:
    """How this process was started, so that what is printed can be typed."""
    script = Path(sys.argv[0]).name
    return script if script == "isaac-appo" else f"{os.path.relpath(sys.executable)} -m isaac_appo"


def _resumed(trainer: Trainer, path: Path) -> str:
    rate = float(trainer.pipeline.learner.learning_rate.value)
    text = f"Resumed from {path}: update {trainer.updates}, env step {trainer.env_steps:,}, learning rate {rate:.2e}"
    if trainer.updates >= trainer.config.max_iterations:
        text += (
            f". Nothing is left to train: max_iterations={trainer.config.max_iterations} is reached; "
            f"use max_iterations={_more(trainer)} to go on, or experiment=NAME for a new run"
        )
    return text


def _hung(run_dir: RunDir, text: str) -> None:
    from isaac_appo.supervision import EXIT_HANG

    os.write(2, (text + "\n").encode())
    run_dir.close("hung", EXIT_HANG)
    os._exit(EXIT_HANG)


def _test(composed: ComposedConfig) -> int:
    """``test=True checkpoint=PATH``: evaluate a checkpoint and print the result."""
    from isaac_appo.build import choose_engine
    from isaac_appo.checkpoint import CheckpointError
    from isaac_appo.play.session import load_policy, play

    config = composed.config
    if not config.checkpoint:
        raise CheckpointError("test=True needs a policy to test: add checkpoint=FILE or checkpoint=RUN_DIRECTORY")
    policy = load_policy(config.checkpoint)
    print(f"Engine: {choose_engine(config)}")
    print(f"{policy.path}, update {policy.state['epoch']}: {play(config, policy)}")
    return 0
