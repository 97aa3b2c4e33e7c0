"""``isaac-appo export``: ONNX, TorchScript and a contract of a trained policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import List

from isaac_appo.commands.compose import before_torch
from isaac_appo.commands.stored import config_for, find_checkpoint, run_of, split_options
from isaac_appo.config.option import option


@dataclass(frozen=True)
class ExportOptions:
    """What `isaac-appo export` takes besides train's keys."""

    checkpoint: str = option("latest", "FILE | RUN | latest, the newest run under run_root")
    output: str = option("", "folder; '' = export/ in the run, else in the working folder")
    run_root: str = option("runs", "where run folders are")


_HELP = """usage: isaac-appo export [KEY=VALUE ...]

  isaac-appo export checkpoint=latest
  isaac-appo export checkpoint=runs/Ant/default/s42 output=robot

Writes TASK.onnx and TASK.pt, the whole policy from raw observations to bounded actions, and TASK.json, which says what
goes in and comes out. Both are compared with the trained policy; a difference above 1e-5 is an error.

Keys:"""


def main(argv: List[str]) -> int:
    """Export one policy; exit code 2 if the command line or the checkpoint is refused, 1 if the copies differ."""
    options, words = split_options(ExportOptions, argv, _HELP)
    checkpoint = find_checkpoint(options.checkpoint, options.run_root)
    run = run_of(checkpoint)
    config = config_for(run, words, "export")
    before_torch(config)
    from isaac_appo.export.files import export  # torch and the engines: a typing error is answered before
    from isaac_appo.play.session import load_policy

    policy = load_policy(checkpoint)
    folder = Path(options.output).expanduser() if options.output else (run or Path()) / "export"
    done = export(config, policy, folder)
    print(f"Policy: {policy.path}, version {policy.version}")
    for path, note in ((done.onnx, "onnx"), (done.torchscript, "torchscript")):
        print(f"{path}: largest difference from the trained policy {done.differences[note]:.1e}")
    print(f"{done.contract}: names, scales, times, joints, versions, hashes")
    return 0
