"""What is drawn is the contract state of the environment that was picked."""

from __future__ import annotations

import mujoco
import numpy as np
import torch

from isaac_appo.env.task_env import make_env
from isaac_appo.play.scene import Scene


def test_the_pose_is_that_of_the_engine_itself() -> None:
    env = make_env("Ant", {}, num_envs=3, seed=1)
    env.reset()
    for _ in range(5):
        env.step(torch.ones(3, 8))
    scene = Scene(env)
    for index in (2, 0):
        scene.pose(index)
        data = mujoco.MjData(scene.model)
        data.qpos[:] = env.engine.state_dict()["state"][index, 1 : 1 + scene.model.nq].numpy()
        mujoco.mj_kinematics(scene.model, data)
        np.testing.assert_allclose(scene.data.geom_xpos, data.geom_xpos, atol=1e-6)
        np.testing.assert_allclose(scene.data.geom_xmat, data.geom_xmat, atol=1e-6)


def test_the_camera_follows_the_free_body_if_there_is_one() -> None:
    ant, cartpole = (Scene(make_env(name, {})) for name in ("Ant", "Cartpole"))
    assert ant.model.body(ant.root).name == "torso" and cartpole.root == -1
    assert ant.dt == 0.0166
