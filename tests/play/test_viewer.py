from __future__ import annotations

import urllib.request
from dataclasses import replace
from typing import List

import mujoco
import numpy as np
import pytest
import torch

from isaac_appo.commands.compose import compose
from isaac_appo.env.task_env import make_env
from isaac_appo.play.scene import Scene
from isaac_appo.play.viewer import Viewer, _add_geom, watch

pytest.importorskip("viser")


def test_it_serves_a_page_while_the_policy_plays() -> None:
    config = compose(["task=Ant"]).config
    config = replace(config, eval=replace(config.eval, num_envs=3))
    pages: List[bytes] = []

    def opened(address: str) -> None:
        with urllib.request.urlopen(address, timeout=30) as answer:
            pages.append(answer.read())

    watch(config, None, "random", 0, opened, steps=3)
    assert pages and pages[0].lower().startswith(b"<!doctype html>")


def test_every_geom_but_the_floor_is_placed_and_the_panel_says_what_runs() -> None:
    env = make_env("Ant", {}, num_envs=2, seed=3)
    env.reset()
    env.step(torch.ones(2, 8))
    scene = Scene(env)
    viewer = Viewer(scene, 2, "Ant   policy version 7, trained at lag 1", 0)
    try:
        scene.pose(1)
        viewer._follow.value = False
        viewer.show("step 5")
        names = [scene.model.geom(geom).name for geom in viewer._geoms]
        assert len(names) == scene.model.ngeom - 1 and "floor" not in names
        for geom, handle in viewer._geoms.items():
            np.testing.assert_allclose(handle.position, scene.data.geom_xpos[geom], atol=1e-5)
        assert viewer._text.content == "Ant   policy version 7, trained at lag 1\n\nstep 5"
        assert viewer.picked == 0
        viewer._picker.value = 1
        assert viewer.picked == 1
    finally:
        viewer.close()


class Meshes:
    """A scene that keeps the mesh it is given."""

    def add_mesh_simple(self, name: str, vertices: np.ndarray, faces: np.ndarray, color: tuple) -> Meshes:
        self.vertices, self.faces = vertices, faces
        return self


def test_a_capsule_is_closed_and_has_its_size() -> None:
    env = make_env("Ant", {}, num_envs=1)
    model = Scene(env).model
    geom = next(g for g in range(model.ngeom) if model.geom_type[g] == mujoco.mjtGeom.mjGEOM_CAPSULE.value)
    model.geom_size[geom, :2] = 0.5, 2.0  # radius, half the length of the middle part
    meshes = Meshes()
    assert _add_geom(meshes, model, geom) == [meshes]
    vertices, faces = meshes.vertices, meshes.faces
    assert [vertices[:, 2].min(), vertices[:, 2].max()] == pytest.approx([-2.5, 2.5])
    assert np.linalg.norm(vertices[:, :2], axis=1).max() <= 0.5 + 1e-6
    corners = vertices[faces]
    normals = np.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0])
    volume = (corners.mean(1) * normals).sum() / 6.0  # positive: all triangles look outwards
    assert volume == pytest.approx(np.pi * 0.25 * 4.0 + 4 / 3 * np.pi * 0.125, rel=0.06)
