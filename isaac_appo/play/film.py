"""A video of one environment, taken while episodes are played."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Callable, Optional, Type

from torch import Tensor

from isaac_appo.env.task_env import TaskEnv
from isaac_appo.play.camera import Camera
from isaac_appo.play.scene import Scene
from isaac_appo.play.video import VideoWriter

FPS = {".mp4": 30.0, ".gif": 15.0}
"""Frames a second, at most."""
SIZE = (480, 320)


class Film:
    """Streams environment 0 of `env` into `path`; call it after each step, as a `Watch` of `play_episodes`.

    Args:
        length: steps after which nothing more is drawn.
        caption: first line of the overlay, asked anew for each frame.

    Errors: VideoError when nothing can be drawn or encoded.
    """

    def __init__(self, env: TaskEnv, path: Path, length: int, caption: Callable[[], str]) -> None:
        self._scene, self._length, self._caption = Scene(env), length, caption
        self._every = max(1, round(1.0 / (FPS.get(path.suffix, 30.0) * self._scene.dt)))
        self._camera = Camera(self._scene, *SIZE)
        try:
            self.video = VideoWriter(path, SIZE, 1.0 / (self._every * self._scene.dt))
        except BaseException:
            self._camera.close()
            raise

    def __call__(self, step: int, returns: Tensor) -> None:
        """Draw as often as the frame rate needs."""
        if step >= self._length or step % self._every:
            return
        self._scene.pose(0)
        seconds = (step + 1) * self._scene.dt
        caption = f"{self._caption()}\n{seconds:5.1f} s   return {float(returns[0]):8.1f}"
        self.video.write(self._camera.picture(caption))

    def __enter__(self) -> Film:
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self.video.close()
        self._camera.close()
