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
    from isaac_appo.report.reporter import Reporter
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
    from isaac_appo.checkpoint import resolve_resume
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
        with SignalGuard(lambda: _newest(run_dir.checkpoints)) as guard:
            code = _run(composed, run_dir, engine, guard, loaded)
        status = {0: "complete"}.get(code, "interrupted")
        return code
    finally:
        run_dir.close(status, code)


def _run(composed: ComposedConfig, run_dir: RunDir, engine: EngineChoice, guard: SignalGuard, loaded: Loaded) -> int:
    from isaac_appo.budgets import available_cores, measure_update, resolve_budgets
    from isaac_appo.checkpoint import load_checkpoint
    from isaac_appo.report.reporter import Reporter, Start
    from isaac_appo.report.wandb_sink import wandb_options
    from isaac_appo.supervision import Watchdog
    from isaac_appo.trainer import Trainer, own_entry

    own = own_entry(loaded[0]) if loaded else None
    config, budgets = resolve_budgets(composed.config, own and own["budgets"], measure_update, available_cores())
    start = Start(int(loaded[0]["epoch"]), int(loaded[0]["frame"]), own["elapsed_s"]) if loaded and own else Start()
    total = config.max_iterations * config.num_envs * config.ppo.horizon_length
    report = config.report
    schedule = config.schedule
    limit = f"lag <= {schedule.max_policy_lag}" if schedule.name == "free" else f"lag {schedule.lag}"
    title = f"{config.task.name}, {config.num_envs} envs, {schedule.name}, {limit}"
    with Reporter(
        run_dir,
        total,
        config.max_iterations,
        report.console,
        report.interval,
        report.tensorboard,
        title,
        start,
        wandb=wandb_options(config),
    ) as reporter:
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
            evaluation = None if guard.stop_requested else _evaluate(trainer, reporter, run_dir)
            _draw(trainer, run_dir, evaluation)
            _draw_trace(trainer, reporter, run_dir)
            _keep_best(trainer, reporter, run_dir)
            reporter.summary(_summary(trainer, reporter, run_dir, composed, evaluation))
        finally:
            trainer.close()
    return guard.exit_code


def _evaluate(trainer: Trainer, reporter: Reporter, run_dir: RunDir) -> Optional[Evaluation]:
    settings = trainer.config.eval
    if not settings.enabled:
        return None
    count = trainer.config.num_envs if trainer.shared else settings.num_envs
    reporter.message(f"Evaluating: one episode in each of {count} environments")
    evaluation = trainer.evaluate()
    run_dir.write_run_json(evaluation=evaluation._asdict())
    return evaluation


def _draw(trainer: Trainer, run_dir: RunDir, evaluation: Optional[Evaluation]) -> None:
    from isaac_appo.report.plots import EvalPoint, reward_curve

    if trainer.config.report.plot:
        point = EvalPoint(trainer.env_steps, evaluation.mean, evaluation.std) if evaluation else None
        title = f"{trainer.config.task.name}, seed {trainer.config.seed}"
        reward_curve(run_dir.metrics_csv, run_dir.curve_png, title, point)


def _draw_trace(trainer: Trainer, reporter: Reporter, run_dir: RunDir) -> None:
    from isaac_appo.report.trace import render

    if trainer.trace is None:
        return
    c = trainer.config
    trainer.trace.write(run_dir.trace_json, f"{c.task.name}, {c.num_envs} envs, {c.schedule.name}")
    try:
        render(run_dir.trace_json, run_dir.trace_json.with_suffix(".png"))
    except ValueError as error:
        reporter.warn(f"report.trace: {error}")
    else:
        reporter.message(f"Timeline: {run_dir.trace_json} (open it in Perfetto), and as a picture beside it")


def _keep_best(trainer: Trainer, reporter: Reporter, run_dir: RunDir) -> None:
    from isaac_appo.checkpoint import read_best

    best = read_best(run_dir.checkpoints)
    path = best[0] if best else trainer.writer.last_path
    if path is not None:
        reporter.artifact(path)


def _summary(
    trainer: Trainer, reporter: Reporter, run_dir: RunDir, composed: ComposedConfig, evaluation: Optional[Evaluation]
) -> List[str]:
    c = trainer.config
    ledger = trainer.pipeline.ledger.totals()
    fps = (trainer.env_steps - trainer.resumed_env_steps) / max(trainer.meter.seconds, 1e-9)
    lines = [
        f"Updates:     {trainer.updates} of {c.max_iterations}, {trainer.env_steps:,} env steps in "
        f"{reporter.elapsed_s:.1f} s, {fps:,.0f} env steps/s of wall clock in this process",
        f"Streams:     {trainer.meter.overlap()}",
        f"Training:    mean return {trainer.meter.mean_reward:.1f} over the last {c.ppo.games_to_track} episodes "
        f"(exploring), mean length {trainer.meter.mean_length:.1f}",
        f"Evaluation:  {evaluation if evaluation is not None else 'not run'}",
        "Rows:        " + ", ".join(f"{name} {rows:,}" for name, rows in ledger.items() if rows),
        f"Checkpoint:  {trainer.writer.last_path}",
        f"Curve:       {run_dir.curve_png}",
    ]
    typed = [word for word in composed.overrides if not word.startswith(("max_iterations=", "resume="))]
    again = " ".join([_program(), "train", *map(shlex.quote, typed), f"max_iterations={_more(trainer)}"])
    return [*lines, f"Resume with: {again}", f"All files:   {run_dir.path}"]


def _program() -> str:
    """How this process was started, so that what is printed can be typed."""
    script = Path(sys.argv[0]).name
    return script if script == "isaac-appo" else f"{os.path.relpath(sys.executable)} -m isaac_appo"


def _more(trainer: Trainer) -> int:
    total = trainer.config.max_iterations
    return total if trainer.updates < total else 2 * total


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


def _newest(directory: Path) -> Optional[Path]:
    from isaac_appo.checkpoint import list_checkpoints

    return next(iter(reversed(list_checkpoints(directory))), None)


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
