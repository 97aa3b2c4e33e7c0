"""The base class: buffers, and the order of things in `step`."""

from __future__ import annotations

from typing import Any, Dict, Tuple

import torch


class VecTask:
    def __init__(
        self,
        config: Dict[str, Any],
        rl_device: str,
        sim_device: str,
        graphics_device_id: int,
        headless: bool,
        virtual_screen_capture: bool = False,
        force_render: bool = False,
    ) -> None:
        env = config["env"]
        self.rl_device, self.sim_device, self.device = rl_device, sim_device, sim_device
        self.graphics_device_id, self.headless, self.force_render = graphics_device_id, headless, force_render
        self.num_envs, self.num_agents = env["numEnvs"], env.get("numAgents", 1)
        self.num_obs = self.num_observations = env["numObservations"]
        self.num_states, self.num_actions = env.get("numStates", 0), env["numActions"]
        self.clip_obs, self.clip_actions = env.get("clipObservations", float("inf")), env.get("clipActions", 1.0)
        n = self.num_envs
        self.obs_buf, self.states_buf = torch.zeros(n, self.num_obs), torch.zeros(n, self.num_states)
        self.rew_buf = torch.zeros(n)
        self.reset_buf = torch.ones(n, dtype=torch.long)
        self.timeout_buf, self.progress_buf = torch.zeros(n, dtype=torch.long), torch.zeros(n, dtype=torch.long)
        self.extras: Dict[str, Any] = {}
        self.obs_dict: Dict[str, torch.Tensor] = {}
        self.total_train_env_frames = 0
        self.closed = False

    def step(self, actions: torch.Tensor) -> Tuple[Dict[str, torch.Tensor], torch.Tensor, torch.Tensor, Dict[str, Any]]:
        self.pre_physics_step(torch.clamp(actions, -self.clip_actions, self.clip_actions))
        self.simulate()
        self.post_physics_step()
        self.timeout_buf = (self.progress_buf >= self.max_episode_length - 1) & (self.reset_buf != 0)
        self.extras["time_outs"] = self.timeout_buf
        return self._observations(), self.rew_buf, self.reset_buf, self.extras

    def reset(self) -> Dict[str, torch.Tensor]:
        return self._observations()

    def reset_done(self) -> Tuple[Dict[str, torch.Tensor], torch.Tensor]:
        env_ids = self.reset_buf.nonzero(as_tuple=False).flatten()
        if len(env_ids) > 0:
            self.reset_idx(env_ids)
        return self._observations(), env_ids

    def _observations(self) -> Dict[str, torch.Tensor]:
        self.obs_dict["obs"] = torch.clamp(self.obs_buf, -self.clip_obs, self.clip_obs)
        if self.num_states > 0:
            self.obs_dict["states"] = torch.clamp(self.states_buf, -self.clip_obs, self.clip_obs)
        return self.obs_dict

    def set_train_info(self, env_frames: int, *args: Any) -> None:
        self.total_train_env_frames = env_frames
