from __future__ import annotations

import json
from typing import Any, Dict

import pytest
import yaml

from tests.docker.dockerfile import ROOT

FILE = ROOT / "docker" / "compose.yaml"
SERVICES = ("mujoco", "isaacgym")


def compose() -> Dict[str, Any]:
    return yaml.safe_load(FILE.read_text())


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_reserves_a_gpu_and_stops_by_a_signal_that_arrives(name: str) -> None:
    service = compose()["services"][name]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert device["driver"] == "nvidia" and device["count"] == 1 and device["capabilities"] == ["gpu"]
    assert service["user"] == "1000:1000" and service["init"] is True and service["stop_grace_period"] == "2m"
    assert isinstance(service["command"], list) and not {"entrypoint", "privileged"} & set(service)


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_named_and_lie_where_the_image_made_folders(name: str) -> None:
    whole = compose()
    service = whole["services"][name]
    mounts = dict(volume.split(":") for volume in service["volumes"])
    assert set(mounts) == set(whole["volumes"]) == {"runs", "warp-kernels", "pip"}
    text = (ROOT / service["build"]["dockerfile"]).read_text()
    folders = text.split("RUN mkdir -p ")[1].splitlines()[0].split()
    assert "WORKDIR /home/appo\n" in text
    assert sorted(mounts.values()) == sorted(f"/home/appo/{folder}" for folder in folders)


@pytest.mark.parametrize("name", SERVICES)
def test_the_build_finds_its_file_and_its_arguments(name: str) -> None:
    service = compose()["services"][name]
    context = (FILE.parent / service["build"]["context"]).resolve()
    text = (context / service["build"]["dockerfile"]).read_text()
    assert context == ROOT and not service["image"].endswith(":latest") and ":" in service["image"]
    for argument in service["build"]["args"]:
        assert f"ARG {argument}" in text
    for extra in service["build"].get("additional_contexts", {}):
        assert f"from={extra}," in text


@pytest.mark.parametrize("name", SERVICES)
def test_secrets_come_from_the_environment_alone(name: str) -> None:
    environment = compose()["services"][name]["environment"]
    assert "WANDB_API_KEY" in environment
    assert [entry for entry in environment if "=" in entry] == []


@pytest.mark.parametrize("icd", ["10_nvidia.json", "nvidia_icd.json"])
def test_a_vendor_file_names_the_drivers_library(icd: str) -> None:
    described = json.loads((ROOT / "docker" / "icd" / icd).read_text())
    assert described["file_format_version"] == "1.0.0"
    assert described["ICD"]["library_path"] in ("libEGL_nvidia.so.0", "libGLX_nvidia.so.0")
