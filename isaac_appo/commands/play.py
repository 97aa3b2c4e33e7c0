"""``isaac-appo play``: evaluate a policy, film it, or watch it in the browser."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, List, Optional

from isaac_appo.commands.compose import before_torch
from isaac_appo.commands.stored import config_for, engine_of, find_checkpoint, run_of, split_options
from isaac_appo.config.option import option
from isaac_appo.config.schema import RunConfig
from isaac_appo.errors import UserError

if TYPE_CHECKING:
    from isaac_appo.play.session import Policy


@dataclass(frozen=True)
class PlayOptions:
    """What `isaac-appo play` takes besides train's keys."""

    checkpoint: str = option("", "FILE | RUN | latest, the newest run under run_root; the default")
    agent: str = option("trained", "trained | zero | random", choices=("trained", "zero", "random"))
    num_envs: int = option(0, "environments, one episode in each; 0 = eval.num_envs", ge=0)
    seed: int = option(-1, "seed of the episodes; -1 = eval.seed", ge=-1, lt=2**31)
    video: bool = option(False, "film the first environment")
    output: str = option("", "the film, .mp4 or .gif; '' = videos/ in the run, else the working folder")
    length: int = option(400, "steps in the film", ge=1)
    viewer: bool = option(False, "watch in the browser until Ctrl-C, in place of an evaluation")
    port: int = option(8080, "of the viewer; 0 = any free one", ge=0, lt=65536)
    run_root: str = option("runs", "where run folders are")


_HELP = """usage: isaac-appo play [KEY=VALUE ...]

  isaac-appo play checkpoint=latest video=true
  isaac-appo play checkpoint=runs/Ant/default/s42 num_envs=64 sim=mujoco
  isaac-appo play task=Ant agent=random num_envs=16
  isaac-appo play checkpoint=latest viewer=true

Task and settings are read from the run that the checkpoint lies in; task=NAME and train's other keys replace them.

Keys:"""


def main(argv: List[str]) -> int:
    """Play one policy; exit code 2 if the command line, the checkpoint or the machine refuses."""
    options, words = split_options(PlayOptions, argv, _HELP)
    wanted = options.checkpoint or ("latest" if options.agent == "trained" else "")
    checkpoint = find_checkpoint(wanted, options.run_root)
    run = run_of(checkpoint) if checkpoint else None
    config = _sized(config_for(run, words, "play"), options)
    before_torch(config)
    from isaac_appo.play.session import load_policy  # torch and the engines: a typing error is answered before

    policy = load_policy(checkpoint) if checkpoint and options.agent == "trained" else None
    if options.viewer:
        from isaac_appo.play.viewer import watch

        watch(config, policy, options.agent, options.port, lambda at: print(f"Open {at} in a browser. Ctrl-C ends."))
    else:
        _play(config, policy, options, run)
    return 0


def _sized(config: RunConfig, options: PlayOptions) -> RunConfig:
    num_envs = options.num_envs or config.eval.num_envs
    seed = config.eval.seed if options.seed < 0 else options.seed
    return replace(config, eval=replace(config.eval, num_envs=num_envs, seed=seed))


def _play(config: RunConfig, policy: Optional[Policy], options: PlayOptions, run: Optional[Path]) -> None:
    from isaac_appo.build import choose_engine
    from isaac_appo.play.session import play

    engine = choose_engine(config)
    print(f"Task: {config.task.name}. Engine: {engine}")
    if policy is not None:
        print(f"Policy: {policy.path}, version {policy.version}")
    video = _film(config, policy, options, run) if options.video or options.output else None
    result = play(config, policy, options.agent, video, options.length)
    print(f"{options.agent}: {result}")
    if video is not None:
        print(f"Video: {video}")
    home = engine_of(run) if run else ""
    if policy is not None and home not in ("", engine.name):
        _compare(config, policy, home, engine.name, str(result))


def _film(config: RunConfig, policy: Optional[Policy], options: PlayOptions, run: Optional[Path]) -> Path:
    """Where the film goes; a folder of a run unless it was named."""
    if options.output:
        return Path(options.output).expanduser()
    name = f"{config.task.name}_{options.agent}" + (f"_{policy.version:09d}" if policy else "")
    folder = run / "videos" if run is not None and os.access(run, os.W_OK) else Path()
    return folder / f"{name}.mp4"


def _compare(config: RunConfig, policy: Policy, trained_on: str, played_on: str, result: str) -> None:
    """The same policy on the engine that it was trained on, beside the one it was played on."""
    from isaac_appo.play.session import play

    home = replace(config, sim=replace(config.sim, name=trained_on))
    try:
        reference = str(play(home, policy))
    except (UserError, ImportError) as error:
        reference = f"cannot run here: {error}"
    width = max(len(trained_on), len(played_on))
    print("Sim to sim:")
    print(f"  {trained_on:<{width}}  (trained on)  {reference}")
    print(f"  {played_on:<{width}}  (played on)   {result}")
