from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any, Dict, List

import pytest

from tests.docker.dockerfile import ROOT, ignored, instructions, violations

FILES = sorted((ROOT / "docker").glob("*Dockerfile"))
MUJOCO, ISAACGYM = ROOT / "docker" / "Dockerfile", ROOT / "docker" / "isaacgym.Dockerfile"


def test_both_images_are_here() -> None:
    assert FILES == [MUJOCO, ISAACGYM]


@pytest.mark.skipif(sys.version_info < (3, 9), reason="the lint tools are in the lock of Python 3.11 alone")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_hadolint_finds_nothing(path: Path) -> None:
    hadolint = Path(sysconfig.get_paths()["scripts"], "hadolint")
    done = subprocess.run([str(hadolint), "--no-color", str(path)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_rule_is_kept(path: Path) -> None:
    assert violations(path.read_text()) == []


BROKEN = {
    "root": ("USER ${UID}", "USER root", "ends as user 'root', not 1000"),
    "root by number": ("ARG UID=1000", "ARG UID=0", "ends as user '0', not 1000"),
    "no user": ("USER ${UID}\n", "", "ends as user '', not 1000"),
    "shell form": ('ENTRYPOINT ["isaac-appo"]', "ENTRYPOINT isaac-appo", "ENTRYPOINT is not in exec form"),
    "shell health check": ('CMD ["python", "/opt/healthcheck.py"]', "CMD python /opt/healthcheck.py", "HEALTHCHECK is"),
    "kill": ("STOPSIGNAL SIGTERM", "STOPSIGNAL SIGKILL", "STOPSIGNAL is not SIGTERM"),
    "secret": ("PYTHONUNBUFFERED=1", "PYTHONUNBUFFERED=1 WANDB_API_KEY=abc", "ENV WANDB_API_KEY= puts a secret"),
    "secret argument": ("ARG UID=1000", "ARG UID=1000\nARG HUB_TOKEN", "ARG HUB_TOKEN puts a secret"),
    "latest": ("nvidia/cuda:13.0.1-base-rockylinux9", "nvidia/cuda:latest", "not a full version tag"),
    "short tag": ("nvidia/cuda:13.0.1-base-rockylinux9", "nvidia/cuda:13.0", "not a full version tag"),
    "no digest": ("rockylinux9${BASE_DIGEST}", "rockylinux9", "not a full version tag"),
    "no such file": ("COPY cfg ", "COPY cfgs ", "COPY cfgs: no such file"),
    "not in the context": ("COPY cfg ", "COPY tests ", "COPY tests: left out by .dockerignore"),
    "loose": ("-r /src/requirements/py311.txt", "-r /src/requirements/py311.txt numpy", "pip install numpy: not a pin"),
    "other version": ("-r /src/requirements/py311.txt", "torch==2.4.1", "pip install torch==2.4.1: not a pin"),
    "other lock": ("-r /src/requirements/py311.txt", "-r /src/requirements/py38.txt", "py38.txt is not the lock"),
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_each_rule_is_enforced(broken: List[str]) -> None:
    old, new, sentence = broken
    text = MUJOCO.read_text()
    assert text.count(old) == 1
    found = violations(text.replace(old, new))
    assert len(found) == 1 and sentence in found[0]


def test_the_context_holds_neither_the_tarball_nor_runs_nor_secrets() -> None:
    for path in ("docker/IsaacGym_Preview_4_Package.tar.gz", "runs/Ant", ".env", ".git/config", ".venv", "tests"):
        assert ignored(path), path


def test_the_tarball_comes_by_its_own_context_and_is_checked_before_it_is_unpacked() -> None:
    runs = [i.text for i in instructions(ISAACGYM.read_text()) if i.name == "RUN" and "tar -xzf" in i.text]
    assert len(runs) == 1 and runs[0].startswith("--mount=type=bind,from=isaacgym,")
    assert 0 < runs[0].index("sha256sum --check --strict") < runs[0].index("tar -xzf")


@pytest.mark.parametrize(
    ("tarball", "checksum", "said"),
    [
        (False, "", "No gym.tar.gz"),
        (True, "", "Give the tarball's checksum"),
        (True, "0" * 64, "did NOT match"),
        (True, "right", ""),
    ],
)
def test_the_check_of_the_tarball_stops_the_build(tmp_path: Path, tarball: bool, checksum: str, said: str) -> None:
    (run,) = (i.text for i in instructions(ISAACGYM.read_text()) if i.name == "RUN" and "tar -xzf" in i.text)
    script = re.sub(r"^--mount=\S+ ", "", run.split("&& python")[0]).replace("/isaacgym/", f"{tmp_path}/")
    script = script.replace("-C /opt", f"-C {tmp_path}/out")
    (tmp_path / "out").mkdir()
    if tarball:
        (tmp_path / "LICENSE.txt").write_text("text")
        subprocess.run(["tar", "-czf", "gym.tar.gz", "LICENSE.txt"], cwd=str(tmp_path), check=True)
    if checksum == "right":
        shown = subprocess.run(["sha256sum", "gym.tar.gz"], cwd=str(tmp_path), check=True, capture_output=True)
        checksum = shown.stdout.decode().split()[0]
    environment = {"PATH": "/usr/bin:/bin", "ISAACGYM_TARBALL": "gym.tar.gz", "ISAACGYM_SHA256": checksum}
    done = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (said == "") == (tmp_path / "out" / "LICENSE.txt").exists()
    assert said in done.stderr


def test_gymtorch_is_built_as_isaac_gym_itself_would(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name, source and flags by which torch finds the build again, as Preview 4 gives them."""
    from torch.utils import cpp_extension

    seen: Dict[str, Any] = {}
    monkeypatch.setattr("torch.__version__", "2.4.1+cu121")
    monkeypatch.setattr(cpp_extension, "load", lambda **arguments: seen.update(arguments))
    monkeypatch.syspath_prepend(str(ROOT / "docker"))
    import build_gymtorch

    build_gymtorch.main("/opt/isaacgym/python")
    assert seen == {
        "name": "gymtorch",
        "sources": ["/opt/isaacgym/python/isaacgym/_bindings/src/gymtorch/gymtorch.cpp"],
        "extra_cflags": ["-DTORCH_MAJOR=2", "-DTORCH_MINOR=4"],
        "verbose": True,
    }
