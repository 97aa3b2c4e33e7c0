"""Adaptive, linear and constant learning rates."""

from __future__ import annotations

import pytest
import torch

from isaac_appo.learn.learning_rate import LearningRate, LearningRateSettings

SETTINGS = LearningRateSettings(3e-4, "adaptive", True, 0.008, 1e-6, 1e-2, 10)


def controller(**changes: object) -> LearningRate:
    return LearningRate(SETTINGS._replace(**changes), torch.device("cpu"))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kl", "factor"), [(0.0161, 1 / 1.5), (0.0159, 1.0), (0.0041, 1.0), (0.0039, 1.5)])
def test_adaptive_moves_outside_the_band_only(kl: float, factor: float) -> None:
    rate = controller()
    rate.after_minibatch(torch.tensor(kl))
    assert float(rate.value) == pytest.approx(3e-4 * factor)


def test_adaptive_stays_in_its_limits() -> None:
    rate = controller()
    for _ in range(30):
        rate.after_minibatch(torch.tensor(1.0))
    assert float(rate.value) == pytest.approx(1e-6)
    for _ in range(50):
        rate.after_minibatch(torch.tensor(0.0))
    assert float(rate.value) == pytest.approx(1e-2)


def test_standard_adapts_once_a_mini_epoch_to_the_mean() -> None:
    rate = controller(per_minibatch=False)
    for kl in (0.001, 0.039):  # mean 0.020, above the band; the first alone would be below it
        rate.after_minibatch(torch.tensor(kl))
        assert float(rate.value) == pytest.approx(3e-4)
    rate.after_epoch()
    assert float(rate.value) == pytest.approx(2e-4)
    rate.after_epoch()
    assert float(rate.value) == pytest.approx(2e-4)


def test_linear_reaches_the_minimum_and_constant_stays() -> None:
    rate = controller(schedule="linear")
    rate.after_minibatch(torch.tensor(1.0))
    rate.after_update(5)
    assert float(rate.value) == pytest.approx(1e-6 + (3e-4 - 1e-6) / 2)
    rate.after_update(10)
    assert float(rate.value) == pytest.approx(1e-6)
    constant = controller(schedule="constant")
    constant.after_minibatch(torch.tensor(1.0))
    constant.after_update(10)
    assert float(constant.value) == pytest.approx(3e-4)
