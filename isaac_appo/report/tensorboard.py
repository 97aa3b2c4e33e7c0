"""TensorBoard event files with rl_games' tags on rl_games' axes."""

from __future__ import annotations

import math
from pathlib import Path

from isaac_appo.report.metrics import MIRRORED
from isaac_appo.report.sink import Sink


class TensorboardSink(Sink):
    """All metrics against env steps; rewards and episode lengths also against updates (`/iter`) and seconds (`/time`).

    After a resume TensorBoard hides what an earlier process logged from `start_env_steps` on. Raises OSError.
    """

    def __init__(self, directory: Path, start_env_steps: int = 0) -> None:
        from torch.utils.tensorboard import SummaryWriter  # here, as it takes a second to import

        purge = start_env_steps + 1 if start_env_steps > 0 else None
        self._writer = SummaryWriter(str(directory), purge_step=purge)

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        for key, value in metrics.items():
            if math.isnan(value):
                continue
            self._writer.add_scalar(key, value, env_steps)
            name, _, axis = key.rpartition("/")
            if name in MIRRORED and axis == "step":
                self._writer.add_scalar(f"{name}/iter", value, update)
                self._writer.add_scalar(f"{name}/time", value, int(elapsed_s))

    def close(self) -> None:
        self._writer.close()
