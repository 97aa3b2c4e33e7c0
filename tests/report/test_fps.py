from __future__ import annotations

import pytest

from isaac_appo.report.fps import FpsMeter


class Clock:
    now = 50.0

    def __call__(self) -> float:
        return self.now


def test_rates_are_counter_over_wall_clock_idle_time_included() -> None:
    clock = Clock()
    meter = FpsMeter(start_steps=1000, clock=clock)
    for update in range(1, 301):  # 300 s of 1000 steps/s, then 30 s idle
        clock.now += 1.0
        meter.update(1000 + 1000 * update)
    assert meter.rates() == {"fps/10s": 1000.0, "fps/60s": 1000.0, "fps/300s": 1000.0}
    clock.now += 30.0
    rates = meter.rates()
    assert rates["fps/10s"] == 0.0
    assert rates["fps/60s"] == pytest.approx(1000 * 30 / 60, rel=1e-9)
    assert rates["fps/300s"] == pytest.approx(1000 * 270 / 300, rel=1e-9)


def test_irregular_updates_agree_with_the_counter_within_a_percent() -> None:
    clock = Clock()
    meter = FpsMeter(clock=clock)
    counter = 0
    for update in range(3000):
        clock.now += 0.05 + 0.4 * (update % 7 == 0)
        counter += 700 + 50 * (update % 3)
        meter.update(counter)
    elapsed = clock.now - 50.0
    for window, rate in meter.rates().items():
        assert rate == pytest.approx(counter / elapsed, rel=0.01 if window != "fps/10s" else 0.05)


def test_windows_are_cut_to_the_age_of_the_meter() -> None:
    clock = Clock()
    meter = FpsMeter(clock=clock)
    assert meter.rates() == {"fps/10s": 0.0, "fps/60s": 0.0, "fps/300s": 0.0}
    clock.now += 4.0
    meter.update(400)
    assert meter.rates() == {"fps/10s": 100.0, "fps/60s": 100.0, "fps/300s": 100.0}


def test_a_window_shorter_than_an_update_sees_that_updates_mean() -> None:
    clock = Clock()
    meter = FpsMeter(clock=clock)
    clock.now += 40.0
    meter.update(8000)
    assert meter.rates()["fps/10s"] == pytest.approx(200.0)


def test_old_samples_are_let_go() -> None:
    clock = Clock()
    meter = FpsMeter(clock=clock)
    for update in range(20_000):
        clock.now += 1.0
        meter.update(update)
    assert len(meter._times) < 1400
    assert meter.rates()["fps/300s"] == pytest.approx(1.0)
