"""What a measurement was made on."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any, Dict

_PACKAGES = ("torch", "warp-lang", "mujoco", "rl-games", "numpy")


def cores() -> int:
    """Cores that this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def cpu_model() -> str:
    """Name of the processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "missing"


def describe() -> Dict[str, Any]:
    """Processor, cores, memory, versions and the settings that change speed."""
    import torch

    return {
        "cpu": cpu_model(),
        "cores": cores(),
        "cores_total": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in _PACKAGES},
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "environment": {k: os.environ[k] for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if k in os.environ},
    }


def peak_memory_mib() -> float:
    """Largest resident size of this process so far."""
    try:
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):  # getrusage's peak would be the parent's, where that was larger
                return int(line.split()[1]) / 2**10
    except OSError:
        pass
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
