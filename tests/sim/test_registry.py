from __future__ import annotations

from importlib.util import find_spec
from typing import Tuple

import pytest
import torch

from isaac_appo.kernels import wp
from isaac_appo.sim import registry
from isaac_appo.sim.engine import EngineError
from isaac_appo.sim.registry import EngineChoice, engine_class, resolve_engine

INSTALLED = pytest.mark.skipif(find_spec("mujoco_warp") is None, reason="mujoco_warp is not installed")


@pytest.fixture(params=[0, 2], ids=["no GPU", "two GPUs"])
def gpus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """A machine with this many GPUs."""
    count: int = request.param
    monkeypatch.setattr(torch.cuda, "is_available", lambda: count > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    monkeypatch.setattr(wp, "is_cuda_available", lambda: count > 0)
    return count


def _choice(asked: Tuple[str, str, str]) -> Tuple[str, str]:
    choice = resolve_engine(*asked)
    return choice.name, choice.device


@INSTALLED
def test_auto_takes_the_gpu_where_there_is_one_and_says_why(gpus: int) -> None:
    choice = resolve_engine("auto", "auto", "auto")
    if gpus:
        assert str(choice) == "sim=mujoco_warp on cuda:0 (sim=auto: the fastest engine on a GPU)"
    else:
        assert str(choice) == ("sim=mujoco on cpu (sim=auto: PyTorch finds no CUDA GPU, and this one runs on any CPU)")


@INSTALLED
@pytest.mark.parametrize("gpus", [2], indirect=True)
@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("auto", "cuda:1", "auto"), ("mujoco_warp", "cuda:1")),
        (("auto", "auto", "cuda"), ("mujoco_warp", "cuda:0")),
        (("auto", "cpu", "auto"), ("mujoco", "cpu")),
        (("mujoco", "auto", "auto"), ("mujoco", "cpu")),
        (("mujoco_warp", "auto", "auto"), ("mujoco_warp", "cuda:0")),
        (("mujoco_warp", "cuda:1", "cuda:1"), ("mujoco_warp", "cuda:1")),
        (("mujoco_warp", "cuda", "cuda:0"), ("mujoco_warp", "cuda:0")),
        (("mujoco_warp", "auto", "cpu"), ("mujoco_warp", "cpu")),
    ],
)
def test_the_devices_that_are_named_decide(asked: Tuple[str, str, str], expected: Tuple[str, str], gpus: int) -> None:
    assert _choice(asked) == expected


def test_a_slow_choice_says_so(gpus: int) -> None:
    pytest.importorskip("mujoco_warp")
    assert "sim=mujoco is faster on a CPU" in resolve_engine("mujoco_warp", "cpu", "auto").reason


@INSTALLED
@pytest.mark.parametrize("gpus", [2], indirect=True)
@pytest.mark.parametrize(
    ("asked", "message"),
    [
        (("mujoco", "cuda:0", "auto"), "sim_device = cuda:0: sim=mujoco steps on the CPU, .* Use sim_device=cpu"),
        (("mujoco", "cpu", "cuda:0"), "rl_device = cuda:0: sim=mujoco steps on the CPU, .* Use rl_device=cpu"),
        (("mujoco_warp", "cuda:0", "cuda:1"), "rl_device = cuda:1: differs from sim_device = cuda:0"),
        (("auto", "cuda:0", "cpu"), "rl_device = cpu: differs from sim_device = cuda:0"),
        (("mujoco_warp", "cuda:2", "auto"), "cuda:2: this machine has 2 GPU.s.. Use sim_device=cuda:0"),
    ],
)
def test_devices_that_cannot_be_are_refused(asked: Tuple[str, str, str], message: str, gpus: int) -> None:
    with pytest.raises(EngineError, match=message):
        resolve_engine(*asked)


@INSTALLED
@pytest.mark.parametrize("gpus", [0], indirect=True)
@pytest.mark.parametrize("asked", [("auto", "cuda:0", "auto"), ("mujoco_warp", "auto", "auto")])
def test_a_gpu_that_is_not_there_is_refused(asked: Tuple[str, str, str], gpus: int) -> None:
    with pytest.raises(EngineError, match="PyTorch finds no CUDA GPU"):
        resolve_engine(*asked)


@pytest.mark.parametrize("gpus", [2], indirect=True)
def test_without_the_package_auto_stays_on_the_cpu(gpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda name: None)
    choice = resolve_engine("auto", "auto", "auto")
    assert choice[:2] == EngineChoice("mujoco", "cpu", "")[:2]
    assert "pip install 'isaac-appo[warp]'" in choice.reason
    with pytest.raises(EngineError, match=r"Python 3\.11 or later"):
        resolve_engine("mujoco_warp", "auto", "auto")


def test_an_unknown_engine_is_refused_with_those_there_are() -> None:
    with pytest.raises(EngineError, match=r"sim=bullet: no such engine\. Engines: mujoco, mujoco_warp"):
        engine_class("bullet")
