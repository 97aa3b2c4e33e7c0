"""The contract of everything that metrics are written to."""

from __future__ import annotations

import abc
from pathlib import Path


class Sink(abc.ABC):
    """One destination of metrics. A sink may raise: the reporter then goes on without it."""

    @abc.abstractmethod
    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        """Take the metrics of one update.

        `env_steps` and `update` count from the start of the run, `elapsed_s` is its wall time, all resumes included.
        A metric may be absent or NaN where there is nothing to say yet, such as before the first episode has ended.
        """

    def video(self, path: Path, env_steps: int) -> None:  # noqa: B027 (few destinations show videos)
        """Take a finished MP4 or GIF file, recorded at `env_steps`. It must stay until `close`."""

    def artifact(self, path: Path) -> None:  # noqa: B027 (few destinations keep files)
        """Take a file worth keeping, such as the best checkpoint. It must stay until `close`."""

    def close(self) -> None:  # noqa: B027 (not every sink holds something)
        """Write what is pending and let go of the destination."""
