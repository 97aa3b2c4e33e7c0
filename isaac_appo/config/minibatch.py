"""The minibatch that fits a batch: any number of environments trains, and no row is dropped or counted twice."""

from __future__ import annotations

from typing import Tuple


def fit_minibatch(batch: int, asked: int) -> Tuple[int, int, int]:
    """Return (size, count, padded): `count` minibatches of `size` rows hold `batch` rows and `padded` masked ones.

    The size is the largest divisor of `batch` that is at most `asked`, if that is at least half of what was asked
    (nothing padded); else `count = ceil(batch / asked)` equal minibatches, the last one padded. The last minibatch
    always holds a live row. Raises ValueError unless both are positive.
    """
    if batch < 1 or asked < 1:
        raise ValueError(f"batch = {batch}, asked = {asked}: both must be at least 1")
    if asked >= batch:
        return batch, 1, 0
    for count in range(-(-batch // asked), 2 * batch // asked + 1):
        if batch % count == 0:
            return batch // count, count, 0
    count = -(-batch // asked)
    size = -(-batch // count)
    return size, count, count * size - batch
