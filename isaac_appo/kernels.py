"""Warp, imported in one place, and the counter-based random numbers that every kernel shares.

Random numbers are a pure function of (seed, step, env, stream): the same on every executor, thread budget and engine
device, and resumable without generator state. Philox4x32-10 is the generator of Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
import threading
from typing import Any, Dict, Sequence, Tuple

import warp as wp

__all__ = [
    "ACTION_NOISE",
    "RESET",
    "STAGGER",
    "launch",
    "philox_normal",
    "philox_uniform",
    "use_stream",
    "warp_stream",
    "wp",
]

if hasattr(wp.config, "log_level"):
    wp.config.log_level = wp.LOG_ERROR
else:  # Warp 1.10, the last for Python 3.8
    setattr(wp.config, "quiet", True)  # noqa: B010 (unknown to the type checker's Warp)


def _init_warp() -> None:
    """Initialise Warp. Without an NVIDIA driver its native library says so on stderr, which is no news: swallowed."""
    if os.path.exists("/proc/driver/nvidia"):
        wp.init()
        return
    stderr, null = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(null, 2)
        wp.init()
    finally:
        os.dup2(stderr, 2)
        os.close(stderr)
        os.close(null)


with contextlib.redirect_stdout(sys.stdout or io.StringIO()):  # Warp 1.10 has advice, and writes it where none may be
    _init_warp()

_thread = threading.local()
"""Warp's current stream belongs to the device, not to the thread: two threads would launch on each other's."""


_streams: Dict[Tuple[int, int], Any] = {}


def warp_stream(stream: Any) -> Any:
    """A ``torch.cuda.Stream`` as Warp's, the same object each time.

    Warp knows a stream by its wrapper: the end of one makes it forget the stream, whoever else has wrapped it (torch
    hands the same few streams out again and again), and a capture that was begun with one is unknown to another.
    """
    key = stream.device_index, stream.cuda_stream
    if key not in _streams:
        _streams[key] = wp.stream_from_torch(stream)
    return _streams[key]


def use_stream(stream: Any) -> None:
    """The Warp stream that :func:`launch` uses in this thread from now on; ``None``, at first: torch's current one."""
    _thread.stream = stream


def launch(kernel: Any, dim: Any, inputs: Sequence[Any], outputs: Sequence[Any] = (), device: str = "cpu") -> None:
    """``wp.launch`` on this thread's stream, which is torch's current one."""
    stream = getattr(_thread, "stream", None)
    if stream is None and device != "cpu":  # Warp's own would be whichever another thread has just set
        import torch

        stream = warp_stream(torch.cuda.current_stream(device))
    wp.launch(kernel, dim, inputs=inputs, outputs=outputs, device=device, stream=stream)


ACTION_NOISE = 0  # stream numbers: one per use, so that no two uses ever share a draw
RESET = 1
STAGGER = 2

_TWO_PI = wp.constant(6.283185307179586)
_INV_2_32 = wp.constant(2.3283064365386963e-10)
_M0 = wp.constant(wp.uint64(0xD2511F53))
_M1 = wp.constant(wp.uint64(0xCD9E8D57))
_W0 = wp.constant(wp.uint32(0x9E3779B9))
_W1 = wp.constant(wp.uint32(0xBB67AE85))
_LOW = wp.constant(wp.uint64(0xFFFFFFFF))
_HALF = wp.constant(wp.uint64(32))


@wp.func
def _unit(bits: wp.uint32) -> float:
    """Map 32 bits to the open interval (0, 1): the half step keeps log() finite, the clamp keeps float32 below 1."""
    return wp.min((float(bits) + 0.5) * _INV_2_32, 0.99999994)


@wp.func
def philox_uniform(seed: wp.uint64, step: wp.uint64, env: wp.uint32, stream: wp.uint32) -> wp.vec4:
    """Four uniforms in (0, 1) for one (seed, step, env, stream)."""
    k0 = wp.uint32(seed & _LOW)
    k1 = wp.uint32(seed >> _HALF)
    c0 = wp.uint32(step & _LOW)
    c1 = wp.uint32(step >> _HALF)
    c2 = env
    c3 = stream
    for _round in range(10):
        p0 = _M0 * wp.uint64(c0)  # type: ignore[arg-type]
        p1 = _M1 * wp.uint64(c2)  # type: ignore[arg-type]
        n0 = wp.uint32(p1 >> _HALF) ^ c1 ^ k0  # type: ignore[operator]
        n2 = wp.uint32(p0 >> _HALF) ^ c3 ^ k1  # type: ignore[operator]
        c1 = wp.uint32(p1 & _LOW)
        c3 = wp.uint32(p0 & _LOW)
        c0 = n0
        c2 = n2
        k0 = k0 + _W0
        k1 = k1 + _W1
    return wp.vec4(_unit(c0), _unit(c1), _unit(c2), _unit(c3))


@wp.func
def philox_normal(seed: wp.uint64, step: wp.uint64, env: wp.uint32, stream: wp.uint32) -> wp.vec4:
    """Four independent N(0, 1) for one (seed, step, env, stream), by Box and Muller."""
    u = philox_uniform(seed, step, env, stream)
    r0 = wp.sqrt(-2.0 * wp.log(u[0]))
    r1 = wp.sqrt(-2.0 * wp.log(u[2]))
    a0 = _TWO_PI * u[1]
    a1 = _TWO_PI * u[3]
    return wp.vec4(r0 * wp.cos(a0), r0 * wp.sin(a0), r1 * wp.cos(a1), r1 * wp.sin(a1))
