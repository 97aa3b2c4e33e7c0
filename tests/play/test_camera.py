from __future__ import annotations

import importlib
from contextlib import closing

import numpy as np
import pytest
import torch

from isaac_appo.env.task_env import make_env
from isaac_appo.play import camera as module
from isaac_appo.play.camera import Camera
from isaac_appo.play.scene import Scene
from isaac_appo.play.video import VideoError
from tests.helpers import can_film


@pytest.mark.skipif(not can_film(), reason="no encoder, or neither EGL nor OSMesa")
def test_a_picture_shows_the_robot_where_it_is_and_the_caption() -> None:
    env = make_env("Ant", {}, num_envs=1)
    env.reset()
    scene = Scene(env)
    scene.pose(0)
    with closing(Camera(scene, 120, 80)) as camera:
        first = camera.picture().astype(int)
        again = camera.picture().astype(int)
        assert first.shape == (80, 120, 3) and np.array_equal(first, again)
        orange = (first[..., 0] > first[..., 2] + 60).sum()
        assert 100 < orange < 4000
        assert first[:10].mean() > first[-10:].mean()  # sky above, floor below
        captioned = camera.picture("Ant").astype(int)
        changed = np.abs(captioned - first).max(-1) > 30
        assert changed[:40, :60].any() and not changed[50:].any()
        for _ in range(30):
            env.step(torch.ones(1, 8))
        scene.pose(0)
        assert np.abs(camera.picture().astype(int) - first).max() > 60


def test_without_egl_and_osmesa_one_sentence_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ImportError(f"no {name}")

    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(VideoError, match=r"egl: ImportError: no mujoco\.egl; osmesa: .*apt install libegl1"):
        module._open_context(16, 16)
