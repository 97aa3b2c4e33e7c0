from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from isaac_appo.config import fit_minibatch


@pytest.mark.parametrize(
    ("num_envs", "asked", "fitted"),
    [  # horizon 16, so the batch is 16 * num_envs rows
        (1, 32768, (16, 1, 0)),
        (7, 32768, (112, 1, 0)),
        (64, 32768, (1024, 1, 0)),
        (4095, 32768, (32760, 2, 0)),  # 65520 / 2
        (4099, 32768, (16396, 4, 0)),  # 65584 = 16 * 4099 (a prime): / 2 is 32792, too many
        (4096, 32768, (32768, 2, 0)),
        (1, 4096, (16, 1, 0)),
        (7, 64, (56, 2, 0)),  # 112 / 2
        (64, 300, (256, 4, 0)),  # 1024 / 4
        (4095, 4096, (4095, 16, 0)),
        (4099, 4096, (3858, 17, 2)),  # largest divisor 16 < 2048, so ceil(65584 / 4096) = 17 of ceil(65584 / 17)
    ],
)
def test_hand_computed_sizes(num_envs: int, asked: int, fitted: tuple) -> None:
    assert fit_minibatch(16 * num_envs, asked) == fitted


def test_a_divisor_of_exactly_half_is_taken_and_one_below_half_is_not() -> None:
    assert fit_minibatch(6, 4) == (3, 2, 0)
    assert fit_minibatch(10, 4) == (2, 5, 0)  # divisors of 10 up to 4: 1, 2; 2 is half of 4
    assert fit_minibatch(25, 11) == (9, 3, 2)  # 5 is less than half of 11


def test_sizes_below_one_are_refused() -> None:
    with pytest.raises(ValueError, match=r"batch = 0, asked = 4: both must be at least 1"):
        fit_minibatch(0, 4)
    with pytest.raises(ValueError, match=r"batch = 4, asked = 0"):
        fit_minibatch(4, 0)


@given(batch=st.integers(1, 200_000), asked=st.integers(1, 70_000))
def test_every_row_has_a_place_and_every_minibatch_a_row(batch: int, asked: int) -> None:
    size, count, padded = fit_minibatch(batch, asked)
    assert size * count == batch + padded
    assert 0 <= padded < size
    assert size <= asked
    if padded:  # padding is the last resort: no divisor of the batch lies in [asked / 2, asked]
        assert all(batch % divisor for divisor in range(-(-asked // 2), asked + 1))
    else:
        assert 2 * size >= min(asked, batch)
