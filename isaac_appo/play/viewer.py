"""A live view in the browser: any environment of a running policy, drawn from the geoms of the task's model."""

from __future__ import annotations

import time
from typing import Any, Callable, List, Optional

import mujoco
import numpy as np
import torch

from isaac_appo.config import RunConfig
from isaac_appo.play.agent import make_agent
from isaac_appo.play.scene import Scene
from isaac_appo.play.session import Policy, build_play_env, caption
from isaac_appo.play.video import VideoError


class Viewer:
    """Serves one scene at `address`, with a picker of `num_envs` environments; port 0 takes any free one.

    Errors: VideoError when the package viser is not installed.
    """

    def __init__(self, scene: Scene, num_envs: int, title: str, port: int) -> None:
        try:
            import viser
        except ImportError as error:
            raise VideoError(f"the viewer needs the package viser ({error}). Install it: pip install viser") from error
        self._scene, self._title = scene, title
        self._server = viser.ViserServer(host="127.0.0.1", port=port, verbose=False)
        self._server.scene.set_up_direction("+z")
        self._text = self._server.gui.add_markdown(title)
        self._picker = self._server.gui.add_slider("environment", 0, max(1, num_envs - 1), 1, 0)
        self._follow = self._server.gui.add_checkbox("keep in the middle", scene.root >= 0)
        self._geoms = {
            g: handle for g in range(scene.model.ngeom) for handle in _add_geom(self._server.scene, scene.model, g)
        }
        self.address = f"http://localhost:{self._server.get_port()}"

    @property
    def picked(self) -> int:
        """The environment to show."""
        return int(self._picker.value)

    def show(self, lines: str) -> None:
        """Draw the scene as it is posed, with `lines` under the title."""
        data, root = self._scene.data, self._scene.root
        middle = np.zeros(3)
        if root >= 0 and self._follow.value:
            middle[:2] = data.xpos[root, :2]
        quaternion = np.zeros(4)
        with self._server.atomic():
            for geom, handle in self._geoms.items():
                mujoco.mju_mat2Quat(quaternion, data.geom_xmat[geom])
                handle.position, handle.wxyz = data.geom_xpos[geom] - middle, quaternion.copy()
        self._text.content = f"{self._title}\n\n{lines}"

    def close(self) -> None:
        """Stop serving."""
        self._server.stop()


def _add_geom(scene: Any, model: mujoco.MjModel, geom: int) -> List[Any]:
    """The handle of a geom; none for a plane, which becomes a fixed grid, and for a shape that is not drawn."""
    from trimesh.creation import capsule  # comes with viser

    kinds, size = mujoco.mjtGeom, model.geom_size[geom]
    name, color = f"/geom_{geom}", tuple(int(255 * c) for c in model.geom_rgba[geom, :3])
    kind = model.geom_type[geom]
    if kind == kinds.mjGEOM_PLANE.value:
        scene.add_grid("/floor", infinite_grid=True, cell_size=0.5, position=model.geom_pos[geom])
    elif kind == kinds.mjGEOM_SPHERE.value:
        return [scene.add_icosphere(name, float(size[0]), color)]
    elif kind == kinds.mjGEOM_BOX.value:
        return [scene.add_box(name, color, tuple(2.0 * size))]
    elif kind == kinds.mjGEOM_CYLINDER.value:
        return [scene.add_cylinder(name, float(size[0]), float(2.0 * size[1]), color)]
    elif kind == kinds.mjGEOM_CAPSULE.value:
        mesh = capsule(radius=size[0], height=2.0 * size[1], count=(16, 16))
        mesh.apply_translation(-mesh.bounds.mean(axis=0))  # releases differ in where its middle is
        return [scene.add_mesh_simple(name, mesh.vertices, mesh.faces, color=color)]
    return []


@torch.no_grad()
def watch(
    config: RunConfig,
    policy: Optional[Policy],
    agent: str,
    port: int,
    on_open: Callable[[str], None],
    steps: Optional[int] = None,
) -> None:
    """Play in real time, episode after episode, until Ctrl-C or for `steps` steps.

    Errors: CheckpointError, EngineError, TaskError, VideoError.
    """
    env = build_play_env(config)
    try:
        act, scene = make_agent(agent, config, policy.state if policy else {}, env), Scene(env)
        viewer = Viewer(scene, env.num_envs, caption(config, policy, agent), port)
        try:
            on_open(viewer.address)
            obs, returns, step = env.reset(), torch.zeros(env.num_envs, device=env.device), 0
            while steps is None or step < steps:
                started = time.perf_counter()
                obs, reward, terminated, truncated = env.step(act(obs))
                picked = min(viewer.picked, env.num_envs - 1)
                returns += reward
                scene.pose(picked)
                viewer.show(f"step {int(env.progress[picked])}   return {float(returns[picked]):.1f}")
                returns *= ~(terminated | truncated)
                step += 1
                time.sleep(max(0.0, scene.dt - (time.perf_counter() - started)))
        finally:
            viewer.close()
    except KeyboardInterrupt:
        return
    finally:
        env.close()
