"""Which measurements count, from given loads."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from isaac_appo.bench import load
from isaac_appo.bench.load import Limits, Load, LoadMeter, other_cores, other_load_warnings, reject

LIMITS = Limits(wall_per_cpu=1.03, other_cores=0.15)


@pytest.mark.parametrize(
    ("measured", "one_core", "word"),
    [
        (Load(10.0, 9.9, 0.05), True, ""),
        (Load(10.0, 9.6, 0.05), True, "wall/CPU time 1.042"),
        (Load(10.0, 9.6, 0.05), False, ""),
        (Load(10.0, 19.0, 0.16), False, "0.16 cores"),
        (Load(10.0, 9.9, 0.16), True, "0.16 cores"),
        (Load(10.0, 9.9, None), True, ""),
        (Load(10.0, 5.0, None), True, "wall/CPU time 2.000"),
    ],
)
def test_reject(measured: Load, one_core: bool, word: str) -> None:
    reason = reject(measured, one_core, LIMITS)
    assert word in reason and bool(reason) == bool(word)


def test_other_cores_is_what_the_machine_did_beyond_us() -> None:
    assert other_cores(wall_s=10.0, cpu_s=9.0, busy_s=12.0) == pytest.approx(0.3)
    assert other_cores(wall_s=10.0, cpu_s=9.0, busy_s=8.9) == 0.0
    assert other_cores(wall_s=10.0, cpu_s=9.0, busy_s=None) is None


def test_busy_seconds_leave_out_idle_io_and_guests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stat = tmp_path / "stat"
    #                user nice system idle iowait irq softirq steal guest guest_nice
    stat.write_text("cpu  100 20 30 9000 800 4 5 6 70 7\ncpu0 1 2 3 4 5 6 7 8 9 10\n")
    monkeypatch.setattr(load, "STAT", stat)
    monkeypatch.setattr(load.os, "sysconf", lambda name: 100)
    assert load.busy_seconds() == pytest.approx(1.65)
    monkeypatch.setattr(load, "STAT", tmp_path / "missing")
    assert load.busy_seconds() is None


def test_the_meter_sees_this_process_work() -> None:
    meter = LoadMeter()
    until = time.process_time() + 0.05
    while time.process_time() < until:
        pass
    found = meter.stop()
    assert found.wall_s >= found.cpu_s * 0.5 > 0 and found.cpu_s >= 0.05


def test_the_guard_warns_of_load_and_of_not_knowing() -> None:
    assert other_load_warnings(0.1, LIMITS) == []
    (busy,), (unknown,) = other_load_warnings(0.4, LIMITS), other_load_warnings(None, LIMITS)
    assert "0.40 cores busy" in busy and "/proc/stat" in unknown
