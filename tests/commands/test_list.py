from __future__ import annotations

from typing import List

import pytest

from isaac_appo.commands.list import KINDS
from isaac_appo.commands.main import main
from isaac_appo.config.choices import choices
from isaac_appo.sim.registry import ENGINES, EngineEntry
from isaac_appo.tasks.registry import TASKS


def listed(capsys: pytest.CaptureFixture[str], *kinds: str) -> List[List[str]]:
    assert main(["list", *kinds]) == 0
    return [line.split(None, 1) for line in capsys.readouterr().out.splitlines() if line.startswith("  ")]


def test_everything_is_listed_with_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    lines = listed(capsys)
    assert [line[0] for line in lines if len(line) < 2] == []
    names = {line[0] for line in lines}
    assert names >= {f"task={name}" for name in TASKS} | {f"sim={name}" for name in ENGINES}
    assert names >= {f"{group}={name}" for group in ("schedule", "advantage", "loss", "sim") for name in choices(group)}


def test_an_engine_that_is_added_is_listed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(ENGINES, "newton", EngineEntry("a.module", "Class", "Newton on a GPU"))
    assert ["sim=newton", "Newton on a GPU"] in listed(capsys, "engines")


def test_one_kind_is_one_section_and_an_unknown_one_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert {line[0] for line in listed(capsys, "schedules")} == {"schedule=free", "schedule=lockstep", "schedule=sync"}
    with pytest.raises(SystemExit) as stop:
        main(["list", "robots"])
    assert stop.value.code == 2 and f"robots: no such kind. Kinds: {', '.join(KINDS)}" in capsys.readouterr().err
