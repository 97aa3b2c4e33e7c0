"""What a measurement was made on."""

from __future__ import annotations

import os
import platform
import resource
import sys
from pathlib import Path
from typing import Any, Dict

import torch

from isaac_appo.budgets import available_cores
from isaac_appo.doctor.checks import version


def _proc(file: str, key: str) -> str:
    """What a file under /proc says of ``key``; empty where there is none."""
    try:
        lines = Path("/proc", file).read_text().splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(key)), "")


def describe() -> Dict[str, Any]:
    """Processor, cores, memory, versions and the settings that change speed."""
    packages = ("torch", "warp-lang", "mujoco", "rl-games", "numpy")
    return {
        "cpu": _proc("cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": available_cores(),
        "cores_total": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: version(name) or "missing" for name in packages},
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "environment": {k: os.environ[k] for k in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if k in os.environ},
    }


def peak_memory_mib() -> float:
    """Largest resident size of this process so far."""
    kib = _proc("self/status", "VmHWM")  # getrusage's peak would be the parent's, where that was larger
    if kib:
        return int(kib.split()[0]) / 2**10
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
