"""A video of one environment, taken while episodes are played."""

from __future__ import annotations

from contextlib import closing, contextmanager
from pathlib import Path
from typing import Callable, Iterator

from torch import Tensor

from isaac_appo.env.task_env import TaskEnv
from isaac_appo.evaluation import Watch
from isaac_appo.play.camera import Camera
from isaac_appo.play.scene import Scene
from isaac_appo.play.video import VideoWriter

FPS = {".mp4": 30.0, ".gif": 15.0}
"""Frames a second, at most."""
SIZE = (480, 320)


@contextmanager
def film(env: TaskEnv, path: Path, length: int, caption: Callable[[], str]) -> Iterator[Watch]:
    """Stream environment 0 of `env` into `path` for `length` steps; what it gives is called after each step.

    `caption()` is the first line of the overlay, asked anew for each frame.
    Errors: VideoError when nothing can be drawn or encoded.
    """
    scene = Scene(env)
    every = max(1, round(1.0 / (FPS.get(path.suffix, 30.0) * scene.dt)))
    with closing(Camera(scene, *SIZE)) as camera, closing(VideoWriter(path, SIZE, 1.0 / (every * scene.dt))) as video:

        def draw(step: int, returns: Tensor) -> None:
            if step >= length or step % every:
                return
            scene.pose(0)
            seconds = (step + 1) * scene.dt
            video.write(camera.picture(f"{caption()}\n{seconds:5.1f} s   return {float(returns[0]):8.1f}"))

        yield draw
