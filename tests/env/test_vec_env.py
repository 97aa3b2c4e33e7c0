from __future__ import annotations

from isaac_appo.env.task_env import make_env
from isaac_appo.env.vec_env import AUTORESET_MODES


def test_sizes_come_from_the_spaces() -> None:
    env = make_env("Ant", {"clipActions": 0.5}, num_envs=1)
    assert (env.num_obs, env.num_actions) == (60, 8)
    assert env.spaces["action"] == ((8,), -0.5, 0.5)
    assert env.spaces["obs"] == ((60,), float("-inf"), float("inf"))
    assert env.autoreset in AUTORESET_MODES
