"""One line for each thing a run may need: its status, the fact, and what to do about it."""

from __future__ import annotations

import ctypes.util
import importlib.metadata
import importlib.util
import netrc
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Dict, Iterable, List, NamedTuple, Optional, Tuple

from isaac_appo.doctor.ask import PROBES, Answer, ask_all

OK, WARN, NO = "ok", "warn", "no"
ISAAC_GYM = "Isaac Gym Preview 4"
_DISK_GIB = 2.0


class Check(NamedTuple):
    """`status` is ok, warn (works, with a catch) or no (what needs it does not work)."""

    name: str
    status: str
    fact: str
    remedy: str = ""


def examine(folder: Path) -> Tuple[List[Check], Dict[str, str]]:
    """All checks of this machine, and the engines there are with a line each; `folder` is where runs would go."""
    answers = ask_all(PROBES)
    torch, python = answers["torch"], sys.version_info[:2]
    checks = [
        python_check(python),
        embedded_check(answers["embedded"]),
        disk_check(folder),
        torch_check(torch, driver_version()),
        gpu_check(torch),
        warp_check(answers["warp"]),
        isaacgym_check(answers["isaacgym"], python),
        isaacgym_gpu_check(torch),
        numpy_check(version("numpy")),
        compiler_check(),
        libpython_check(),
        vulkan_check(),
        egl_check(),
        wandb_check(dict(os.environ)),
    ]
    return checks, torch.facts.get("engines", {})


def _judged(good: bool, name: str, otherwise: str, fact: str, remedy: str) -> Check:
    return Check(name, OK, fact) if good else Check(name, otherwise, fact, remedy)


def python_check(python: Tuple[int, ...]) -> Check:
    fact = f"{platform.python_version()} at {sys.executable}"
    return _judged(python >= (3, 8), "Python", NO, fact, "Use Python 3.8 or later")


def embedded_check(answer: Answer) -> Check:
    """Engine `mujoco` built a Cartpole and stepped it: the embedded engine can train."""
    if answer.fault:
        return Check("MuJoCo", NO, f"Cartpole does not step: {answer.fault}", "pip install -e . in the repository")
    return Check("MuJoCo", OK, f"MuJoCo C {answer.facts['version']}: Cartpole was built and stepped")


def disk_check(folder: Path) -> Check:
    there = next(path for path in [folder.absolute(), *folder.absolute().parents] if path.exists())
    free = shutil.disk_usage(there).free / 2**30
    remedy = f"Free some, or choose run_root=FOLDER with {_DISK_GIB:g} GiB or more"
    return _judged(free >= _DISK_GIB, "Disk", WARN, f"{free:.1f} GiB free for {folder}", remedy)


def driver_version() -> str:
    """The NVIDIA driver's version; empty without one."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.partition("\n")[0].strip()


def torch_check(answer: Answer, driver: str) -> Check:
    if answer.fault:
        return Check("torch", NO, answer.fault, "pip install torch; with a GPU, a build for your driver's CUDA")
    built = f"built for CUDA {answer.facts['cuda']}" if answer.facts["cuda"] else "a CPU build"
    fact = f"{answer.facts['version']}, {built}, NVIDIA driver {driver or 'not found'}"
    if driver and not answer.facts["devices"]:
        remedy = "Install a torch built for a CUDA that the driver knows (nvidia-smi prints it)"
        return Check("torch", WARN, f"{fact}, no GPU usable by torch", remedy)
    return Check("torch", OK, fact)


def gpu_check(answer: Answer) -> Check:
    """A GPU that torch computes on. Its capability is written sm_XY as CUDA does."""
    devices = answer.facts.get("devices", [])
    if not devices:
        return Check("GPU", NO, "none that torch can use", "sim=mujoco trains on the CPU; GPU engines need NVIDIA's")
    fact = ", ".join(f"{d['name']} (sm_{d['sm']}, {d['gib']} GiB)" for d in devices)
    unbuilt = [d["name"] for d in devices if answer.facts["archs"] and not _built_for(d["sm"], answer.facts["archs"])]
    if unbuilt:
        return Check("GPU", WARN, f"{fact}; this torch has no code for {unbuilt[0]}", "Install a newer torch")
    return Check("GPU", OK, fact)


def _built_for(sm: int, archs: Iterable[str]) -> bool:
    """Binaries run on a later minor capability of the same major one; PTX (compute_XY) on anything later."""
    pairs = [(kind, int(digits.rstrip("af"))) for kind, _, digits in (arch.partition("_") for arch in archs)]
    return any(n <= sm and (kind == "compute" or n // 10 == sm // 10) for kind, n in pairs)


def isaacgym_gpu_check(answer: Answer) -> Check:
    """Can the GPU pipeline of Isaac Gym run on the GPUs that are here?"""
    name, devices = "Isaac Gym GPU", answer.facts.get("devices", [])
    if not devices:
        return Check(name, WARN, "no GPU: its PhysX has the CPU pipeline only", "sim=mujoco is made for CPUs")
    newest = max(devices, key=lambda device: int(device["sm"]))
    sm, fact = newest["sm"], f"{newest['name']} is sm_{newest['sm']}"
    if sm >= 100:
        reason = f"{ISAAC_GYM} has no code for Blackwell, and no torch for Python 3.8 has either"
        return Check(name, NO, f"{fact}: {reason}", "Use sim=mujoco_warp or sim=mujoco, or an Ampere or Ada GPU")
    if sm >= 90:
        remedy = "Try it; where it crashes use sim=mujoco_warp, or an Ampere or Ada GPU"
        return Check(name, WARN, f"{fact} (Hopper): crashes in create_sim are reported", remedy)
    return Check(name, OK, f"{fact}, older than Hopper")


def warp_check(answer: Answer) -> Check:
    if answer.fault:
        return Check("Warp", NO, answer.fault, "pip install warp-lang")
    return Check("Warp", OK, f"{answer.facts['version']}, devices {', '.join(answer.facts['devices'])}")


def isaacgym_check(answer: Answer, python: Tuple[int, ...]) -> Check:
    """Importable in a process of its own, before torch; the tests' stand-in is called what it is."""
    name = "Isaac Gym"
    if not answer.fault:
        kind = "a DOUBLE for tests on MuJoCo, not NVIDIA's" if answer.facts["double"] else f"{ISAAC_GYM} imports"
        return Check(name, WARN if answer.facts["double"] else OK, f"{kind}: {answer.facts['file']}")
    if python > (3, 8):
        fact = f"runs on Python 3.8 at the latest, this is {python[0]}.{python[1]}"
        remedy = "uv venv -p 3.8, or conda create -n gym python=3.8; then pip install -e isaacgym/python"
    elif answer.absent:
        fact, remedy = "not installed", f"Download {ISAAC_GYM} from NVIDIA, pip install -e isaacgym/python"
    else:
        fact = f"does not import: {answer.fault}"
        remedy = "See the lines on libpython, numpy and the GPU; its own docs/install.html lists the rest"
    return Check(name, NO, fact, remedy)


def numpy_check(found: Optional[str]) -> Check:
    """Isaac Gym's Python files use np.float, which numpy removed in 1.24."""
    if found is None:
        return Check("numpy", NO, "not installed", "pip install numpy")
    has = tuple(int(part) for part in found.split(".")[:2]) < (1, 24)
    fact = f"{found} has {'' if has else 'no '}np.float, which Isaac Gym's own files use"
    return _judged(has, "numpy", WARN, fact, "For Isaac Gym only: pip install 'numpy<1.24'")


def compiler_check() -> Check:
    """gymtorch is compiled when it is first imported."""
    compiler = next((found for found in map(shutil.which, ("c++", "g++", "clang++")) if found), None)
    ninja = shutil.which("ninja") or ("the Python package" if importlib.util.find_spec("ninja") else None)
    fact = f"compiler {compiler or 'missing'}, ninja {ninja or 'missing'}"
    missing = [text for found, text in ((compiler, "apt install g++"), (ninja, "pip install ninja")) if not found]
    if missing:
        return Check("gymtorch", WARN, f"{fact}: Isaac Gym cannot build it", "; ".join(missing))
    return Check("gymtorch", OK, fact)


def libpython_check() -> Check:
    name, library = "libpython3.8", "libpython3.8.so.1.0"
    searched = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    places = [sysconfig.get_config_var("LIBDIR"), f"{sys.base_prefix}/lib", f"{sys.prefix}/lib", *searched]
    place = next((place for place in places if place and Path(place, library).exists()), None)
    if place:
        remedy = f"If Isaac Gym misses it: export LD_LIBRARY_PATH={place}"
        return Check(name, OK, f"{place}/{library}", "" if place in searched else remedy)
    cached = ctypes.util.find_library("python3.8")  # a bare name, from the loader's cache
    remedy = "apt install libpython3.8, or a conda Python"
    return _judged(bool(cached), name, WARN, cached or "not found; Isaac Gym loads it", remedy)


def vulkan_check() -> Check:
    """Isaac Gym draws with Vulkan; without a viewer and cameras it needs none."""
    named = os.environ.get("VK_DRIVER_FILES") or os.environ.get("VK_ICD_FILENAMES") or ""
    found = [path for path in named.split(":") if path and Path(path).exists()]
    for folder in ("/etc/vulkan/icd.d", "/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d"):
        found += sorted(map(str, Path(folder).glob("*.json")))
    more = f" and {len(found) - 3} more" if found[3:] else ""
    remedy = "Only for Isaac Gym's viewer and cameras: install the driver's nvidia_icd.json; else headless=True"
    return _judged(bool(found), "Vulkan", WARN, ", ".join(found[:3]) + more or "no driver file (ICD)", remedy)


def egl_check() -> Check:
    """MuJoCo draws without a display through EGL, or on the CPU through OSMesa."""
    found = " and ".join(name for name in ("EGL", "OSMesa") if ctypes.util.find_library(name))
    fact = f"{found} for pictures without a display" if found else "neither EGL nor OSMesa"
    remedy = "For pictures and videos: apt install libegl1 libosmesa6"
    return _judged(bool(found), "Rendering", WARN, fact, remedy)


def wandb_check(environment: Dict[str, str]) -> Check:
    """Is there a login? The key itself is never read further than that, nor shown."""
    name = "W&B"
    if version("wandb") is None:
        return Check(name, WARN, "package wandb is not installed", "For logging to it: pip install wandb, wandb login")
    if environment.get("WANDB_API_KEY"):
        return Check(name, OK, "logged in by WANDB_API_KEY")
    if _in_netrc(environment):
        return Check(name, OK, "logged in by the netrc file")
    return Check(name, WARN, "not logged in", "wandb login, or set WANDB_API_KEY")


def _in_netrc(environment: Dict[str, str]) -> bool:
    host = environment.get("WANDB_BASE_URL", "https://api.wandb.ai").partition("://")[2].split("/")[0].split(":")[0]
    path = Path(environment.get("NETRC") or Path(environment.get("HOME") or "~").expanduser() / ".netrc")
    try:
        return netrc.netrc(str(path)).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def version(package: str) -> Optional[str]:
    """Of an installed package; None if it is not."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
