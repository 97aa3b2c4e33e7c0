from __future__ import annotations

from pathlib import Path

import pytest

from isaac_appo.commands.main import main


def test_runs_become_a_table_and_a_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for seed, reward in ((1, 4.0), (2, 6.0)):
        run = tmp_path / "Ant" / "a" / f"s{seed}"
        run.mkdir(parents=True)
        (run / "metrics.csv").write_text(f"update,env_steps,elapsed_s,rewards/step\n1,8,1,0\n2,16,2,{reward}\n")
        (run / "config.yaml").write_text(f"task: {{name: Ant}}\nseed: {seed}\n")
    assert main(["plot", str(tmp_path)]) == 0
    assert "| Ant | a | 2 | 5.0 ± 1.4 | 16 | 2.0 |" in capsys.readouterr().out
    assert (tmp_path / "plot.png").stat().st_size > 0
    assert main(["plot", str(tmp_path / "Ant"), "--out", str(tmp_path / "other.png")]) == 0
    assert (tmp_path / "other.png").exists() and not (tmp_path / "Ant" / "plot.png").exists()


def test_nothing_to_draw_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(tmp_path)]) == 2
    assert "no metrics.csv" in capsys.readouterr().err
    (tmp_path / "metrics.csv").write_text("update,env_steps,elapsed_s\n1,8,1\n")
    assert main(["plot", str(tmp_path)]) == 2
    assert "no episode has ended" in capsys.readouterr().err
