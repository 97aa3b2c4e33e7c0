from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, List

import pytest

from isaac_appo.doctor import checks
from isaac_appo.doctor.ask import Answer

ARCHS = ["sm_75", "sm_80", "sm_86", "sm_90"]


def torch_with(sm: int, archs: List[str] = ARCHS, name: str = "GPU") -> Answer:
    device = {"name": name, "sm": sm, "gib": 80}
    return Answer({"version": "2.4.1", "cuda": "12.1", "devices": [device], "archs": archs})


@pytest.mark.parametrize(
    ("sm", "status", "word"),
    [
        (70, "ok", "older"),
        (89, "ok", "older"),
        (90, "warn", "Hopper"),
        (100, "no", "Blackwell"),
        (120, "no", "Blackwell"),
    ],
)
def test_isaac_gym_and_the_gpus_capability(sm: int, status: str, word: str) -> None:
    check = checks.isaacgym_gpu_check(torch_with(sm))
    assert check.status == status and word in check.fact and f"sm_{sm}" in check.fact
    assert (check.remedy == "") == (status == "ok")


@pytest.mark.parametrize(
    ("sm", "archs", "runs"),
    [
        (80, ["sm_80"], True),
        (86, ["sm_80"], True),  # a binary runs on later minor capabilities
        (120, ["sm_75", "sm_90"], False),
        (75, ["sm_80"], False),
        (120, ["sm_90", "compute_90"], True),  # PTX is compiled for what comes later
        (90, ["sm_90a"], True),
        (120, ["sm_100", "sm_120"], True),
    ],
)
def test_a_torch_without_code_for_the_gpu_is_named(sm: int, archs: List[str], runs: bool) -> None:
    check = checks.gpu_check(torch_with(sm, archs))
    assert check.status == ("ok" if runs else "warn")
    assert ("no code for GPU" in check.fact) == (not runs)


def test_no_gpu_and_no_torch() -> None:
    none = Answer({"version": "2.4.1", "cuda": None, "devices": [], "archs": []})
    assert checks.gpu_check(none).status == "no" and checks.gpu_check(Answer({}, "broken")).status == "no"
    assert checks.torch_check(Answer({}, "OSError: libcudart"), "").fact == "OSError: libcudart"
    assert "a CPU build" in checks.torch_check(none, "").fact
    assert checks.torch_check(none, "550.54").status == "warn"
    assert checks.torch_check(torch_with(80), "550.54") == (
        "torch", "ok", "2.4.1, built for CUDA 12.1, NVIDIA driver 550.54", "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("answer", "python", "status", "word"),
    [
        (Answer({"double": True, "file": "/d/isaacgym/__init__.py"}), (3, 8), "warn", "a DOUBLE"),
        (Answer({"double": True, "file": "/d/isaacgym/__init__.py"}), (3, 11), "warn", "a DOUBLE"),
        (Answer({"double": False, "file": "/g/isaacgym/__init__.py"}), (3, 8), "ok", "Preview 4 imports"),
        (Answer({}, "ModuleNotFoundError: No module named 'isaacgym'", True), (3, 8), "no", "not installed"),
        (Answer({}, "the process that tried it ended by SIGSEGV"), (3, 8), "no", "SIGSEGV"),
        (Answer({}, "ImportError: libpython3.8.so.1.0"), (3, 8), "no", "libpython3.8.so.1.0"),
        (Answer({}, "ModuleNotFoundError: No module named 'isaacgym'", True), (3, 11), "no", "this is 3.11"),
    ],
)
def test_isaac_gym_itself(answer: Answer, python: Any, status: str, word: str) -> None:
    check = checks.isaacgym_check(answer, python)
    assert check.status == status and word in check.fact


@pytest.mark.parametrize(("version", "status"), [("1.23.5", "ok"), ("1.24.0", "warn"), ("2.0.0", "warn"), (None, "no")])
def test_numpy_lost_np_float_in_1_24(version: Any, status: str) -> None:
    assert checks.numpy_check(version).status == status


def test_disk_is_looked_at_where_the_runs_would_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    usage = type("Usage", (), {"free": 3 * 2**29})
    monkeypatch.setattr(checks.shutil, "disk_usage", lambda path: seen.append(path) or usage)
    check = checks.disk_check(tmp_path / "not" / "there")
    assert seen == [tmp_path]
    assert check.status == "warn" and check.fact == f"1.5 GiB free for {tmp_path / 'not' / 'there'}"


def test_python_older_than_3_8() -> None:
    assert checks.python_check((3, 7)).status == "no" and checks.python_check((3, 8)).status == "ok"


@pytest.mark.parametrize(
    ("base_url", "machine", "logged_in"),
    [
        (None, "api.wandb.ai", True),
        (None, "example.org", False),
        ("https://wandb.example.org:8080/x", "wandb.example.org", True),
    ],
)
def test_wandb_login_in_netrc_is_seen_and_never_shown(
    base_url: Any, machine: str, logged_in: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checks, "version", lambda package: "0.1")
    (tmp_path / ".netrc").write_text(f"machine {machine}\n  login user\n  password verysecret\n")
    (tmp_path / ".netrc").chmod(0o600)
    environment: Dict[str, str] = {"HOME": str(tmp_path), **({"WANDB_BASE_URL": base_url} if base_url else {})}
    check = checks.wandb_check(environment)
    assert check.status == ("ok" if logged_in else "warn") and "secret" not in str(check)


def test_wandb_login_in_the_environment_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "version", lambda package: "0.1")
    check = checks.wandb_check({"WANDB_API_KEY": "verysecret", "HOME": "/nowhere"})
    assert check.status == "ok" and "secret" not in str(check)
    monkeypatch.setattr(checks, "version", lambda package: None)
    assert "not installed" in checks.wandb_check({"WANDB_API_KEY": "verysecret"}).fact


def test_vulkan_driver_files_named_in_the_environment_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    icd = tmp_path / "nvidia_icd.json"
    icd.write_text("{}")
    monkeypatch.setenv("VK_DRIVER_FILES", f"{tmp_path}/gone.json:{icd}")
    check = checks.vulkan_check()
    assert check.status == "ok" and str(icd) in check.fact and "gone" not in check.fact


def test_gymtorch_needs_a_compiler_and_ninja(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.shutil, "which", lambda name: {"g++": "/usr/bin/g++"}.get(name))
    monkeypatch.setattr(checks.importlib.util, "find_spec", lambda name: None)
    check = checks.compiler_check()
    assert (check.status, check.remedy) == ("warn", "pip install ninja")
    assert "/usr/bin/g++" in check.fact


def test_libpython_is_found_where_the_loader_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks.ctypes.util, "find_library", lambda name: None)
    monkeypatch.setattr(checks.sysconfig, "get_config_var", lambda name: str(tmp_path / "lib"))
    monkeypatch.setattr(checks.sys, "base_prefix", "/nowhere")
    monkeypatch.setattr(checks.sys, "prefix", "/nowhere")
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    assert checks.libpython_check().status == "warn"
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libpython3.8.so.1.0").write_text("")
    assert f"export LD_LIBRARY_PATH={tmp_path / 'lib'}" in checks.libpython_check().remedy
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/x:{tmp_path / 'lib'}")
    assert checks.libpython_check()[1:] == ("ok", str(tmp_path / "lib" / "libpython3.8.so.1.0"), "")
