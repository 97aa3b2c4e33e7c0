from __future__ import annotations

import logging
import threading
from pathlib import Path

import mujoco
import pytest

from isaac_appo.sim.mujoco_log import MujocoLog, _on_warning


def _text(kind: mujoco.mjtWarning) -> str:
    return mujoco.mju_warningText(kind.value, 7)


def test_lines_are_written_once_and_at_flush_only(tmp_path: Path) -> None:
    log = MujocoLog(str(tmp_path / "run"))
    log.add("first ")
    assert not (tmp_path / "run").exists()
    log.flush()
    log.flush()
    log.add("second")
    log.flush()
    assert (tmp_path / "run" / "MUJOCO_LOG.TXT").read_text() == "WARNING: first\nWARNING: second\n"


def test_a_flood_is_cut_and_counted(tmp_path: Path) -> None:
    log = MujocoLog(str(tmp_path))
    for i in range(130):
        log.add(f"line {i}")
    log.flush()
    lines = (tmp_path / "MUJOCO_LOG.TXT").read_text().splitlines()
    assert len(lines) == 101
    assert lines[-2:] == ["WARNING: line 99", "WARNING: ... and 30 more"]


def test_only_full_memory_counts_as_overflow() -> None:
    log = MujocoLog("")
    for kind in ("mjWARN_CONTACTFULL", "mjWARN_CNSTRFULL", "mjWARN_BADQACC", "mjWARN_INERTIA"):
        log.add(_text(getattr(mujoco.mjtWarning, kind)))
    assert log.take_overflows() == 2
    assert log.take_overflows() == 0


def test_each_thread_warns_into_the_log_attached_to_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    mine, other = MujocoLog(str(tmp_path / "mine")), MujocoLog(str(tmp_path / "other"))

    def warn() -> None:
        with other.attached():
            _on_warning("theirs")

    with mine.attached():
        thread = threading.Thread(target=warn)
        thread.start()
        thread.join()
        _on_warning("ours")
    with caplog.at_level(logging.WARNING):
        _on_warning("nobody's")
    mine.flush()
    other.flush()
    assert (tmp_path / "mine" / "MUJOCO_LOG.TXT").read_text() == "WARNING: ours\n"
    assert (tmp_path / "other" / "MUJOCO_LOG.TXT").read_text() == "WARNING: theirs\n"
    assert "nobody's" in caplog.text
