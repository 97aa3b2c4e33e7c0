from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from isaac_appo.play.video import VideoError, VideoWriter, load_encoder

imageio_ffmpeg = pytest.importorskip("imageio_ffmpeg")


def read(path: Path) -> tuple:
    """Size and frames [F, H, W, 3] of a video file."""
    stream = imageio_ffmpeg.read_frames(str(path))
    size = next(stream)["size"]
    return size, np.array([np.frombuffer(frame, np.uint8).reshape(size[1], size[0], 3) for frame in stream])


@pytest.mark.parametrize("ending", [".mp4", ".gif"])
def test_what_is_written_can_be_read_again(tmp_path: Path, ending: str) -> None:
    path = tmp_path / "new" / f"film{ending}"
    colours = [(200, 30, 30), (30, 200, 30), (30, 30, 200)]
    with closing(VideoWriter(path, (48, 32), 10)) as video:
        for colour in colours:
            video.write(np.full((32, 48, 3), colour, np.uint8))
    size, frames = read(path)
    assert size == (48, 32) and len(frames) == 3
    for frame, colour in zip(frames, colours):
        np.testing.assert_allclose(frame.mean((0, 1)), colour, atol=12)


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(VideoError, match=r"film\.avi: a video's name must end in \.mp4 or \.gif"):
        VideoWriter(tmp_path / "film.avi", (48, 32), 10)


def test_a_missing_encoder_is_said_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(VideoError, match="pip install imageio-ffmpeg"):
        load_encoder()


def test_an_encoder_that_dies_is_an_error(tmp_path: Path) -> None:
    video = VideoWriter(tmp_path / "film.mp4", (48, 32), 10)
    with pytest.raises(VideoError, match="cannot be written"):
        for _ in range(3):  # the first frames may still fit into a pipe
            video.write(np.zeros((1, 1, 3), np.uint8))
            video._stream.close()
