"""A double of IsaacGymEnvs: its entry point, its task map and its rules, on arithmetic in place of physics.

What it keeps of the original: `make`, resolvers registered at import and without `replace`, live reward and reset
buffers, one object for observations and one for extras, a `reset` that resets nothing, and the moment at which each
class resets what is done. With ISAACGYMENVS_DOUBLE_STRICT=1 it refuses to be imported after torch, as Isaac Gym does.
"""

from __future__ import annotations

import os
import sys
from typing import Any

if os.environ.get("ISAACGYMENVS_DOUBLE_STRICT") and "torch" in sys.modules:
    raise ImportError("PyTorch was imported before isaacgym modules")

from omegaconf import OmegaConf

__is_double__ = True

OmegaConf.register_new_resolver("eq", lambda x, y: x.lower() == y.lower())
OmegaConf.register_new_resolver("contains", lambda x, y: x.lower() in y.lower())
OmegaConf.register_new_resolver("if", lambda pred, a, b: a if pred else b)
OmegaConf.register_new_resolver("resolve_default", lambda default, arg: default if arg == "" else arg)


def make(
    seed: int,
    task: str,
    num_envs: int,
    sim_device: str,
    rl_device: str,
    graphics_device_id: int = -1,
    headless: bool = False,
    multi_gpu: bool = False,
    virtual_screen_capture: bool = False,
    force_render: bool = True,
    cfg: Any = None,
) -> Any:
    from isaacgymenvs.tasks import isaacgym_task_map

    tree = OmegaConf.to_container(cfg.task, resolve=True)
    return isaacgym_task_map[tree["name"]](
        tree, rl_device, sim_device, graphics_device_id, headless, virtual_screen_capture, force_render
    )
