"""Tasks: in every env `x` counts steps from 0, the observation is [x, env], a step pays 10. Even envs run to the
time-out at age `episodeLength - 1`; odd ones fall at `x = fallAt`. The classes differ in when they reset."""

from __future__ import annotations

from typing import Any

import torch

from isaacgymenvs.tasks.vec_task import VecTask


class Chain(VecTask):
    """The arithmetic. `states` are [100 x, env, age]."""

    def __init__(self, cfg: Any, *args: Any, **kwargs: Any) -> None:
        env = cfg["env"]
        env["numObservations"], env["numActions"], env["numStates"] = 2, 1, 3 if env.get("asymmetric") else 0
        self.cfg = cfg
        self.max_episode_length = env["episodeLength"]
        super().__init__(cfg, *args, **kwargs)
        self.x = torch.zeros(self.num_envs)
        self.env_ids = torch.arange(self.num_envs, dtype=torch.float32)
        self.curriculum = 0

    def reset_idx(self, env_ids: torch.Tensor) -> None:
        self.x[env_ids] = 0.0
        self.progress_buf[env_ids] = 0
        self.reset_buf[env_ids] = 0

    def reset_ended(self) -> None:
        env_ids = self.reset_buf.nonzero(as_tuple=False).squeeze(-1)
        if len(env_ids) > 0:
            self.reset_idx(env_ids)

    def simulate(self) -> None:
        self.x += 1.0

    def observe(self) -> None:
        self.obs_buf[:, 0], self.obs_buf[:, 1] = self.x, self.env_ids
        if self.num_states:
            self.states_buf.copy_(torch.stack([100 * self.x, self.env_ids, self.progress_buf.float()], dim=1))

    def fell(self) -> torch.Tensor:
        return (self.env_ids % 2 == 1) & (self.x >= self.cfg["env"]["fallAt"])

    def judge(self) -> None:
        self.rew_buf[:] = 10.0
        self.reset_buf[:] = ((self.progress_buf >= self.max_episode_length - 1) | self.fell()).long()

    def pre_physics_step(self, actions: torch.Tensor) -> None:
        self.actions = actions.clone()

    def post_physics_step(self) -> None:
        self.progress_buf += 1
        self.observe()
        self.judge()

    def get_env_state(self) -> Any:
        return {"curriculum": self.curriculum}

    def set_env_state(self, state: Any) -> None:
        self.curriculum = state["curriculum"]

    def set_train_info(self, env_frames: int, *args: Any) -> None:
        super().set_train_info(env_frames, *args)
        self.curriculum = env_frames // 64


class Ant(Chain):
    """Resets in the next `post_physics_step`: what is returned with done is the last observation."""

    def post_physics_step(self) -> None:
        self.progress_buf += 1
        self.reset_ended()
        self.observe()
        self.judge()


class ShadowHand(Chain):
    """Resets in the next `pre_physics_step`: the next action acts in the new episode already."""

    def pre_physics_step(self, actions: torch.Tensor) -> None:
        self.reset_ended()
        super().pre_physics_step(actions)


class AnymalTerrain(Chain):
    """Resets before it returns, and by that zeroes the ages that its base class takes the time-outs from."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reset_idx(torch.arange(self.num_envs))

    def post_physics_step(self) -> None:
        self.progress_buf += 1
        self.judge()
        ended = self.reset_buf.clone()
        self.reset_ended()
        self.reset_buf = ended
        self.observe()


class HumanoidAMPBase(Chain):
    """Never resets by itself: `reset_done` is the caller's to call."""

    def post_physics_step(self) -> None:
        super().post_physics_step()
        self.extras["terminate"] = self.fell().long()

    def reset_idx(self, env_ids: torch.Tensor) -> None:
        super().reset_idx(env_ids)
        self.observe()


class HumanoidAMP(HumanoidAMPBase):
    pass


class Mine(Chain):
    """A class that nobody knows; it resets in the same step."""

    post_physics_step = AnymalTerrain.post_physics_step


isaacgym_task_map = {cls.__name__: cls for cls in (Ant, ShadowHand, AnymalTerrain, HumanoidAMP, Mine)}
