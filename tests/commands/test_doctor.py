from __future__ import annotations

import json
from typing import Dict

import pytest

from isaac_appo.commands import doctor
from isaac_appo.commands.main import main
from isaac_appo.doctor.checks import Check
from isaac_appo.doctor.verdict import NEEDS


def test_this_machine_can_train_with_the_embedded_engine(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "ok  MuJoCo" in out and "ok  sim=mujoco " in out
    names = [
        "Python",
        "Disk",
        "torch",
        "GPU",
        "Warp",
        "Isaac Gym",
        "numpy",
        "gymtorch",
        "libpython3.8",
        "Vulkan",
        "W&B",
    ]
    assert [name for name in names if f"  {name:<14}" not in out] == []
    lines = out.splitlines()
    for line, after in zip(lines, lines[1:]):  # what does not work has a remedy
        assert not (line.startswith(("--", "!!")) and "sim=" not in line) or after.strip().startswith("->"), line


@pytest.mark.parametrize(("status", "code"), [("ok", 0), ("no", 1)])
def test_json_and_the_exit_code(
    status: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checks: Dict[str, Check] = {name: Check(name, "ok", "fine") for names in NEEDS.values() for name in names}
    checks["MuJoCo"] = Check("MuJoCo", status, "a fact", "a remedy")
    monkeypatch.setattr(doctor, "examine", lambda folder: (list(checks.values()), {"mujoco": "MuJoCo C"}))
    assert main(["doctor", "--json"]) == code
    shown = json.loads(capsys.readouterr().out)
    assert shown["embedded_engine_trains"] is (code == 0)
    assert {"name": "MuJoCo", "status": status, "fact": "a fact", "remedy": "a remedy"} in shown["checks"]
    assert {e["engine"]: e["works"] for e in shown["engines"]}["mujoco"] is (code == 0)


def test_the_matrix_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--matrix"]) == 0
    assert "Cartpole  mujoco" in capsys.readouterr().out
    assert main(["doctor", "--matrix", "--json"]) == 0
    assert {"task", "engine", "schedule", "python", "state"} == set(json.loads(capsys.readouterr().out)[0])
