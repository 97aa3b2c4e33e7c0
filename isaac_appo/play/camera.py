"""Offscreen pictures of a scene: MuJoCo's own renderer on EGL or OSMesa, without a display."""

from __future__ import annotations

import importlib
import os
from typing import Any, List

import mujoco
import numpy as np

from isaac_appo.play.scene import Scene
from isaac_appo.play.video import VideoError, load_encoder

_PLATFORMS = ("egl", "osmesa")


def _open_context(width: int, height: int) -> Any:
    """An OpenGL context without a window, current on this thread. Errors: VideoError that says what each one lacked."""
    asked = os.environ.get("MUJOCO_GL", "").strip().lower()
    faults: List[str] = []
    for name in [asked] if asked in _PLATFORMS else _PLATFORMS:
        try:
            context = importlib.import_module(f"mujoco.{name}").GLContext(width, height)
            context.make_current()
            return context
        except Exception as error:  # noqa: PERF203 (a missing library shows in as many ways as there are drivers)
            faults.append(f"{name}: {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}")
    raise VideoError(
        f"no picture can be drawn without a display: {'; '.join(faults)}. Install one of the two "
        "(Debian: apt install libegl1 libgl1-mesa-dri, or libosmesa6 with MUJOCO_GL=osmesa), or leave video out"
    )


def check_camera() -> None:
    """Find out here and now whether films can be made. Errors: VideoError."""
    load_encoder()
    _open_context(16, 16).free()


class Camera:
    """Draws a scene from the model's camera "play", or from one that follows the first free body; for one thread only.

    Errors: VideoError when there is neither EGL nor OSMesa.
    """

    def __init__(self, scene: Scene, width: int, height: int) -> None:
        self.scene = scene
        self._context = _open_context(width, height)
        model = scene.model
        model.vis.quality.shadowsize, model.vis.quality.offsamples = 1024, 0  # four times as fast without a GPU
        model.vis.global_.offwidth, model.vis.global_.offheight = width, height
        self._gl = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100.value)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._gl)
        self._drawn = mujoco.MjvScene(model, maxgeom=2000)
        self._drawn.flags[mujoco.mjtRndFlag.mjRND_REFLECTION.value] = False
        self._options, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._view = mujoco.MjrRect(0, 0, width, height)
        self._camera = self._aim()
        self._pixels = np.empty((height, width, 3), np.uint8)

    def _aim(self) -> mujoco.MjvCamera:
        camera, model = mujoco.MjvCamera(), self.scene.model
        mujoco.mjv_defaultFreeCamera(model, camera)
        fixed = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA.value, "play")
        if fixed >= 0:
            camera.type, camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED.value, fixed
        elif self.scene.root >= 0:
            camera.type = mujoco.mjtCamera.mjCAMERA_TRACKING.value
            camera.trackbodyid = self.scene.root
            camera.distance, camera.azimuth, camera.elevation = 2.0 * model.stat.extent, 120.0, -18.0
        return camera

    def picture(self, caption: str = "") -> np.ndarray:
        """RGB uint8 [height, width, 3] of the scene as it is posed, with `caption` in a corner."""
        model, data = self.scene.model, self.scene.data
        everything = mujoco.mjtCatBit.mjCAT_ALL.value
        mujoco.mjv_updateScene(model, data, self._options, self._perturb, self._camera, everything, self._drawn)
        mujoco.mjr_render(self._view, self._drawn, self._gl)
        if caption:
            font, corner = mujoco.mjtFont.mjFONT_NORMAL.value, mujoco.mjtGridPos.mjGRID_TOPLEFT.value
            mujoco.mjr_overlay(font, corner, self._view, caption, "", self._gl)
        mujoco.mjr_readPixels(self._pixels, None, self._view, self._gl)
        return np.ascontiguousarray(self._pixels[::-1])

    def close(self) -> None:
        """Free the context."""
        self._gl.free()
        self._context.free()
