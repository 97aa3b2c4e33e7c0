"""Video files, written frame by frame while the picture is made: nothing is kept in memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Tuple

import numpy as np

from isaac_appo.errors import UserError

# one palette a frame, made as the frame comes: a palette of the whole film would wait for its end
_GIF = [
    "-filter_complex",
    "split[a][b];[a]palettegen=stats_mode=single:max_colors=64[p];[b][p]paletteuse=new=1:dither=none",
]
FORMATS: Dict[str, Dict[str, Any]] = {
    ".mp4": {"codec": "libx264", "pix_fmt_out": "yuv420p", "macro_block_size": 2, "quality": 7},
    ".gif": {"codec": "gif", "pix_fmt_out": "pal8", "macro_block_size": 1, "quality": None, "output_params": _GIF},
}


class VideoError(UserError):
    """A video cannot be drawn or written; the text says what to install or to type."""


def load_encoder() -> Any:
    """The encoder's module. Errors: VideoError when it is not installed."""
    try:
        import imageio_ffmpeg
    except ImportError as error:
        raise VideoError(
            f"videos need the package imageio-ffmpeg ({error}). Install it: pip install imageio-ffmpeg"
        ) from error
    return imageio_ffmpeg


class VideoWriter:
    """Streams frames of `size` (width, height in pixels) into `path`, an .mp4 or .gif; its folder is made.

    Errors: VideoError for another ending, a missing encoder, or an encoder that fails.
    """

    def __init__(self, path: Path, size: Tuple[int, int], fps: float) -> None:
        self.path = Path(path)
        if self.path.suffix not in FORMATS:
            raise VideoError(f"{path}: a video's name must end in {' or '.join(FORMATS)}")
        encoder = load_encoder()
        self.path.parent.mkdir(parents=True, exist_ok=True)
        options = {**FORMATS[self.path.suffix], "ffmpeg_log_level": "error"}
        self._stream = encoder.write_frames(str(self.path), size, fps=fps, **options)
        self._stream.send(None)

    def write(self, frame: np.ndarray) -> None:
        """Add a frame, uint8 [height, width, 3], contiguous."""
        try:
            self._stream.send(frame)
        except (OSError, StopIteration) as error:
            raise VideoError(f"{self.path} cannot be written: {error}") from error

    def close(self) -> None:
        """Finish the file."""
        self._stream.close()
