"""Engine `isaacgym`: NVIDIA Isaac Gym Preview 4 (PhysX), in process, Python 3.8, on CPU or GPU tensors."""

from __future__ import annotations

from typing import Any, Dict, List, Optional, Sequence

import torch
from torch import Tensor

from isaac_appo.sim.engine import Engine, EngineError, EngineSpec
from isaac_appo.sim.isaacgym_import import IsaacGymUnavailableError, import_isaacgym
from isaac_appo.sim.isaacgym_scene import Model, build_scene, read_model

__all__ = ["IsaacGymEngine"]

_HUGE = 1e10  # MuJoCo's bound on a sane coordinate, so that a row breaks by the same rule on every engine
_claims: List[str] = []
"""What this process's one simulation is, once there is one."""


class IsaacGymEngine(Engine):
    """See `Engine`. What is Isaac Gym's own:

    Its tensors are wrapped once and live as long as the simulation; `root_*`, `dof_*` and `site_wrench` are views of
    them. (Where Isaac Gym's order of dofs is not the file's, `dof_*` are views of a buffer in the file's order.)
    Positions and velocities are in the env's own frame, whose axes are the world's, quaternions xyzw.

    `site_wrench` is PhysX's: the net force and torque on the site's body, solver forces included, in site axes. MuJoCo
    gives the wrench that the parent exerts instead, so a policy does not carry over between engines unchanged.

    `reset` only marks its rows; the next `step` sends root and dof state, one indexed call each, because Isaac Gym
    takes no second call for a tensor in a step. Indexed calls leave all other rows alone. They take the number of rows
    from the host: one wait per step, which `host_synchronous` declares.

    A saved state holds positions, velocities and wrenches in float32. PhysX's contact caches cannot be read, so a
    loaded state continues closely, and not bit for bit. PhysX only prints that contacts were dropped (raise
    task.sim.physx.max_gpu_contact_pairs then), so `check` cannot tell.

    `spec.device` decides the pipeline: a CUDA device the GPU pipeline, the CPU the other. Options: see
    `isaacgym_scene.build_scene`.

    Errors: EngineError if Isaac Gym is missing or was imported after torch, for a second simulation in this process
    (even after `close`), for a model that it reads otherwise than MuJoCo, and for a call that it refuses.
    """

    name = "isaacgym"
    host_synchronous = True
    exclusive = True

    def __init__(self, spec: EngineSpec) -> None:
        _refuse_second()
        try:
            import_isaacgym()
        except IsaacGymUnavailableError as error:
            raise EngineError(f"{error}; `isaac-appo train sim=isaacgym` sees to the order") from error
        import isaacgym.gymtorch as gymtorch

        self.spec = spec
        self.num_envs, self.control_dt = spec.num_envs, spec.control_dt
        self.device = torch.device(spec.device)
        self._torch: Any = gymtorch
        model = read_model(spec)
        self.dof_names = model.map.dof_names
        self._scene = build_scene(spec, model)
        _claims.append(f"{spec.num_envs} envs of {spec.model_path}")
        self._gym, self._sim, self._viewer = self._scene.gym, self._scene.sim, self._scene.viewer
        self._open = True
        self._wrap(model.map.num_roots)
        self._allocate(model.map.num_roots)
        self._set_constants(model)
        self._start()

    def _wrap(self, roots: int) -> None:
        """Acquire Isaac Gym's tensors, once, and make the contract's views of them."""
        gym, sim, n = self._gym, self._sim, self.num_envs
        wrap = self._torch.wrap_tensor
        d, s = len(self.dof_names), len(self.spec.sites)
        self._root_state: Tensor = wrap(gym.acquire_actor_root_state_tensor(sim)).view(n, 13)
        self._dof_state: Tensor = wrap(gym.acquire_dof_state_tensor(sim)).view(n, d, 2)
        self.site_wrench = torch.zeros(n, s, 6, device=self.device)
        if s:
            self.site_wrench = wrap(gym.acquire_force_sensor_tensor(sim)).view(n, s, 6)
        if self._root_state.device != self.device:
            raise EngineError(f"Isaac Gym's tensors are on {self._root_state.device}, asked for was {self.device}")
        order = self._scene.dof_order
        self._order = torch.tensor(order, device=self.device) if order != sorted(order) else None
        self._dofs = self._dof_state if self._order is None else torch.zeros_like(self._dof_state)
        self.dof_pos, self.dof_vel = self._dofs[..., 0], self._dofs[..., 1]
        root = self._root_state.view(n, 1, 13)[:, :roots]
        self.root_pos, self.root_quat = root[..., 0:3], root[..., 3:7]
        self.root_lin_vel, self.root_ang_vel = root[..., 7:10], root[..., 10:13]
        self._roots = roots

    def _allocate(self, roots: int) -> None:
        n, device = self.num_envs, self.device
        self.invalid = torch.zeros(n, dtype=torch.bool, device=device)
        self._pending = torch.ones(n, dtype=torch.bool, device=device)
        self._actors = torch.tensor(self._scene.actors, dtype=torch.int32, device=device)
        self._indices = torch.zeros_like(self._actors)  # kept: Isaac Gym reads them after the call has returned
        self._efforts = torch.zeros(n, len(self.dof_names), device=device)
        self._efforts_sent = self._efforts if self._order is None else torch.zeros_like(self._efforts)
        unwrap = self._torch.unwrap_tensor
        self._root_desc, self._dof_desc = unwrap(self._root_state), unwrap(self._dof_state)
        self._effort_desc = unwrap(self._efforts_sent)

    def _set_constants(self, model: Model) -> None:
        device, roots = self.device, model.map.num_roots

        def tensor(values: Any) -> Tensor:
            return torch.as_tensor(values, dtype=torch.float32, device=device)

        self.dof_lower, self.dof_upper = tensor(model.map.dof_lower), tensor(model.map.dof_upper)
        self.effort_limit = tensor(model.map.effort_limit)
        self._effort_floor = -self.effort_limit
        self.initial_dof_pos = tensor(model.map.initial_state[model.map.offsets["dof_q"]])
        pose = tensor(model.root_pose)
        self.initial_root_pos = pose[:3].repeat(roots, 1)
        self.initial_root_quat = pose[3:].repeat(roots, 1)
        self._initial_root = torch.cat([pose, torch.zeros(6, device=device)])
        self._initial_dofs = torch.stack([self.initial_dof_pos, torch.zeros_like(self.initial_dof_pos)], dim=1)

    def _start(self) -> None:
        """Check that Isaac Gym put the actors where it was told to, and put all rows in the initial state."""
        self._refresh()
        off = (self._root_state[:, :3] - self._initial_root[:3]).abs().max()
        if not off < 1e-3:
            raise EngineError(
                f"Isaac Gym's root positions are up to {float(off):.3g} m from where the actors were put: they are not "
                "in the frame of their env, or the importer moved the root"
            )
        self._root_state.copy_(self._initial_root)
        self._dofs.copy_(self._initial_dofs)
        self.site_wrench.zero_()

    def apply_efforts(self, efforts: Tensor) -> None:
        """See `Engine`; clamped to `effort_limit`, so void for a dof without a motor."""
        torch.clamp(efforts, self._effort_floor, self.effort_limit, out=self._efforts)
        if self._order is not None:
            self._efforts_sent.index_copy_(1, self._order, self._efforts)

    def step(self) -> None:
        """See `Engine`."""
        gym, sim = self._gym, self._sim
        self._send_reset_rows()
        self._must(gym.set_dof_actuation_force_tensor(sim, self._effort_desc), "set_dof_actuation_force_tensor")
        gym.simulate(sim)
        if self.device.type == "cpu":
            gym.fetch_results(sim, True)
        self._refresh()
        self._park_broken_rows()
        if self._viewer is not None:
            self._draw()

    def _send_reset_rows(self) -> None:
        rows = self._pending.nonzero()[:, 0]  # the step's one wait: Isaac Gym wants their number
        count = rows.shape[0]
        if count == 0:
            return
        torch.index_select(self._actors, 0, rows, out=self._indices[:count])
        if self._order is not None:
            self._dof_state.index_copy_(1, self._order, self._dofs)
        gym, sim, indices = self._gym, self._sim, self._torch.unwrap_tensor(self._indices[:count])
        if self._roots:
            done = gym.set_actor_root_state_tensor_indexed(sim, self._root_desc, indices, count)
            self._must(done, "set_actor_root_state_tensor_indexed")
        done = gym.set_dof_state_tensor_indexed(sim, self._dof_desc, indices, count)
        self._must(done, "set_dof_state_tensor_indexed")
        self._pending.zero_()

    def _must(self, done: bool, call: str) -> None:
        if not done:
            raise EngineError(f"Isaac Gym refused {call}; it wrote the reason to stderr")

    def _refresh(self) -> None:
        gym, sim = self._gym, self._sim
        self._must(gym.refresh_actor_root_state_tensor(sim), "refresh_actor_root_state_tensor")
        self._must(gym.refresh_dof_state_tensor(sim), "refresh_dof_state_tensor")
        if self.spec.sites:
            self._must(gym.refresh_force_sensor_tensor(sim), "refresh_force_sensor_tensor")
        if self._order is not None:
            torch.index_select(self._dof_state, 1, self._order, out=self._dofs)

    def _park_broken_rows(self) -> None:
        """Rows with a value that is not finite, or above 1e10: the initial state, sent with the next step."""
        parts = (self._root_state, self._dofs.flatten(1), self.site_wrench.flatten(1))
        sane = torch.stack([(part.abs() < _HUGE).all(dim=1) for part in parts]).all(dim=0)
        torch.logical_not(sane, out=self.invalid)
        self._pending.logical_or_(self.invalid)
        broken = self.invalid[:, None]
        self._root_state.copy_(torch.where(broken, self._initial_root, self._root_state))
        self._dofs.copy_(torch.where(broken[..., None], self._initial_dofs, self._dofs))
        self.site_wrench.masked_fill_(broken[..., None], 0.0)

    def reset(self, mask: Tensor) -> None:
        """See `Engine`; waits for nothing."""
        self._pending.logical_or_(mask)
        self.invalid.masked_fill_(mask, False)
        self.site_wrench.masked_fill_(mask[:, None, None], 0.0)

    def check(self, faults: Optional[Sequence[int]] = None) -> None:
        """See `Engine`: nothing can be told, Isaac Gym only prints what it dropped."""

    def _draw(self) -> None:
        gym, sim = self._gym, self._sim
        assert self._viewer is not None
        if gym.query_viewer_has_closed(self._viewer):
            gym.destroy_viewer(self._viewer)
            self._viewer = None
            return
        if self.device.type != "cpu":
            gym.fetch_results(sim, True)
        gym.step_graphics(sim)
        gym.draw_viewer(self._viewer, sim, True)
        gym.sync_frame_time(sim)

    def _saved(self) -> Dict[str, Tensor]:
        names = ("root_state", "dofs", "efforts")
        return {"site_wrench": self.site_wrench, "invalid": self.invalid, **{k: getattr(self, f"_{k}") for k in names}}

    def state_dict(self) -> Dict[str, Tensor]:
        """See `Engine`, and the class for what cannot be saved."""
        return {key: value.clone() for key, value in self._saved().items()}

    def load_state_dict(self, state: Dict[str, Tensor]) -> None:
        """See `Engine`; closely, not bit for bit."""
        mine = self._saved()
        odd = sorted(set(state) ^ set(mine)) or sorted(k for k in mine if state[k].shape != mine[k].shape)
        if odd:
            raise EngineError(
                f"engine isaacgym: the saved state differs in {', '.join(odd)}; use the model, the num_envs and the "
                "engine that it was saved with"
            )
        for key, value in state.items():
            mine[key].copy_(value)
        self.apply_efforts(self._efforts.clone())
        self._pending.fill_(True)

    def close(self) -> None:
        """See `Engine`. The process still cannot make another simulation."""
        if self._open:
            self._open = False
            if self._viewer is not None:
                self._gym.destroy_viewer(self._viewer)
            self._gym.destroy_sim(self._sim)


def _refuse_second() -> None:
    if _claims:
        raise EngineError(
            f"Isaac Gym makes one simulation per process, and this one has made its own ({_claims[0]}). Use "
            "schedule.num_workers=1, and another process for another simulation"
        )
