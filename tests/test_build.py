"""What is decided by the device: the executor, and torch's switches."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from isaac_appo.build import build_env, place_executor, set_numerics
from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import main
from isaac_appo.config import ConfigError
from isaac_appo.sim.registry import EngineChoice

CPU, GPU = EngineChoice("mujoco", "cpu", "as asked"), EngineChoice("mujoco_warp", "cuda:0", "as asked")


@pytest.mark.parametrize(
    ("words", "engine", "executor"),
    [
        ("", CPU, "threads"),
        ("schedule=sync", CPU, "inline"),
        ("", GPU, "cuda"),
        ("schedule=sync", GPU, "cuda"),
        ("schedule.executor=threads", GPU, "threads"),
        ("schedule.executor=cuda", GPU, "cuda"),
    ],
)
def test_the_executor_follows_the_device_unless_it_is_named(words: str, engine: EngineChoice, executor: str) -> None:
    composed = compose(words.split())
    config = place_executor(composed.config, engine, composed.cfg.schedule.executor)
    assert config.schedule.executor == executor


def test_an_engine_is_told_what_it_alone_understands(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco_warp")
    monkeypatch.setattr("isaac_appo.build.choose_engine", lambda config: EngineChoice("mujoco_warp", "cpu", "as asked"))
    env = build_env(compose(["task=Cartpole", "sim=mujoco_warp", "sim.nconmax=7", "sim.njmax=9"]).config, 2, 0, True, 1)
    assert (env.engine.nconmax, env.engine.njmax) == (7, 9)  # type: ignore[attr-defined]


def test_cuda_is_refused_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    composed = compose(["schedule.executor=cuda"])
    with pytest.raises(ConfigError, match=r"executor = cuda: there is no GPU to enqueue on, as sim=mujoco on cpu"):
        place_executor(composed.config, CPU, "cuda")
    assert main(["train", "task=Cartpole", "schedule.executor=cuda", f"run_root={tmp_path}"]) == 2
    assert "Use schedule.executor=auto" in capsys.readouterr().err and not list(tmp_path.iterdir())


def test_tensor_float_32_on_a_gpu_and_full_precision_where_determinism_is_asked_for() -> None:
    plain, exact = compose([]).config, compose(["torch_deterministic=True"]).config
    try:
        set_numerics(plain, "cuda:0")
        assert torch.get_float32_matmul_precision() == "high"
        set_numerics(exact, "cuda:0")
        assert torch.get_float32_matmul_precision() == "highest" and torch.are_deterministic_algorithms_enabled()
    finally:
        set_numerics(plain, "cpu")
    assert torch.get_float32_matmul_precision() == "highest" and not torch.are_deterministic_algorithms_enabled()


def test_fallback_by_the_clock_is_refused_with_determinism() -> None:
    with pytest.raises(ConfigError, match=r"decides by the clock .* Use schedule.fallback=warn"):
        compose(["schedule.fallback=auto", "torch_deterministic=True"])


@pytest.mark.parametrize("extra", ["train.params.config.mixed_precision=True", "torch_deterministic=True"])
def test_a_run_takes_its_numerics_from_the_command_line(extra: str, tmp_path: Path) -> None:
    words = ["num_envs=8", "max_iterations=3", "train.params.config.horizon_length=4", "eval.enabled=False"]
    words += ["train.params.config.minibatch_size=16", "report.console=off", f"run_root={tmp_path}"]
    try:
        assert main(["train", "task=Cartpole", *words, extra]) == 0
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_run_whose_overlap_does_not_pay_goes_on_in_turns_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On ``inline`` nothing ever overlaps."""
    words = ["num_envs=8", "max_iterations=40", "train.params.config.horizon_length=4", "eval.enabled=False"]
    words += ["train.params.config.minibatch_size=16", "report.console=plain", f"run_root={tmp_path}"]
    words += ["schedule.executor=inline", "schedule.fallback=auto"]
    assert main(["train", "task=Cartpole", *words]) == 0
    out = capsys.readouterr().out
    assert "Overlap does not pay here (" in out and "in turns from slab 25 on" in out
