"""The learning bar: the asynchronous trainer, with its defaults, balances the pole."""

from __future__ import annotations

import json
from pathlib import Path

from isaac_appo.commands.main import main


def test_cartpole_is_learnt_with_the_defaults(tmp_path: Path) -> None:
    assert main(["train", "task=Cartpole", f"run_root={tmp_path}", "report.console=off"]) == 0
    record = json.loads((tmp_path / "Cartpole" / "default" / "s42" / "run.json").read_text())
    assert record["evaluation"]["mean"] >= 400  # of 499; an untrained policy gets about 25
