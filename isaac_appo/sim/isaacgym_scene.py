"""Build the PhysX scene of engine `isaacgym`: parameters, the model read by Isaac Gym's importer, N envs with sensors.

What a model is (dof names and order, limits, motors, sites, initial pose) is MuJoCo's reading of the same file, so that
it means the same on every engine; where the importer's reading can be compared, a difference is an error.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, List, Mapping, NamedTuple, Optional, Tuple

import mujoco
import numpy as np

from isaac_appo.sim.engine import EngineError, EngineSpec
from isaac_appo.sim.mujoco_model import ModelMap, load_model, map_model

if TYPE_CHECKING:
    from isaacgym import gymapi

__all__ = ["Model", "Scene", "build_scene", "read_model"]

_SPACING = 5.0  # m, half the side of an env's cell; far apart, the envs' boxes do not fill the broad phase with pairs
_FRICTION = 1.0  # of the ground


class Model(NamedTuple):
    """The parts of an MJCF file that Isaac Gym must be told."""

    map: ModelMap
    gravity: Tuple[float, ...]
    root_pose: Tuple[float, ...]
    """Position m and quaternion xyzw of the root body."""
    self_collides: bool
    site_bodies: List[str]
    site_poses: List[Tuple[float, ...]]
    """Position and quaternion xyzw of each of `spec.sites` in its body."""


class Scene(NamedTuple):
    """A prepared simulation.

    Attributes:
        dof_order: [D] index, among Isaac Gym's dofs of one actor, of each dof of the contract.
        actors: [N] index of each env's actor in the whole simulation.
        viewer: the window, or None.
    """

    gym: gymapi.Gym
    sim: gymapi.Sim
    dof_order: List[int]
    actors: List[int]
    viewer: Optional[gymapi.Viewer]


def _xyzw(quat_wxyz: np.ndarray) -> Tuple[float, ...]:
    return (*map(float, quat_wxyz[1:]), float(quat_wxyz[0]))


def read_model(spec: EngineSpec) -> Model:
    """Read `spec.model_path` with MuJoCo. Errors: EngineError for what Isaac Gym's contract views cannot express."""
    model = load_model(spec)
    found = map_model(model, spec)
    free = [j for j in range(model.njnt) if model.jnt_type[j] == mujoco.mjtJoint.mjJNT_FREE.value]
    tops = [b for b in range(1, model.nbody) if model.body_parentid[b] == 0]
    where = f"model {spec.model_path!r}"
    if len(tops) != 1 or any(model.jnt_bodyid[j] != tops[0] for j in free):
        raise EngineError(f"{where}: {len(tops)} top bodies; engine isaacgym makes one actor of a file: leave it one")
    if free and np.abs(model.body_ipos[tops[0]]).max() > 1e-6:
        raise EngineError(
            f"{where}: the root's centre of mass is not at its frame's origin, and PhysX gives the velocity of the "
            "former; move the frame"
        )
    sites = [model.site(name) for name in spec.sites]
    geoms = [g for g in range(model.ngeom) if model.geom_bodyid[g] > 0]
    return Model(
        map=found,
        gravity=tuple(map(float, model.opt.gravity)),
        root_pose=(*map(float, model.body_pos[tops[0]]), *_xyzw(model.body_quat[tops[0]])),
        self_collides=bool((model.geom_contype[geoms, None] & model.geom_conaffinity[geoms]).any()),
        site_bodies=[str(model.body(int(site.bodyid[0])).name) for site in sites],
        site_poses=[(*map(float, site.pos), *_xyzw(site.quat)) for site in sites],
    )


def build_scene(spec: EngineSpec, model: Model) -> Scene:
    """Create the simulation, fill it and prepare it. Errors: EngineError for what Isaac Gym refuses or reads otherwise.

    `spec.options` may hold compute_device and graphics_device (indices, -1 = none), headless, num_client_threads and
    physx, a mapping of `gymapi.PhysXParams` attributes.
    """
    from isaacgym import gymapi

    options, gym = spec.options, gymapi.acquire_gym()
    graphics = -1 if options.get("headless", True) else int(options.get("graphics_device", 0))
    params = _sim_params(spec, model)
    sim = gym.create_sim(int(options.get("compute_device", 0)), graphics, gymapi.SIM_PHYSX, params)
    if sim is None:
        raise EngineError(
            "Isaac Gym made no simulation; it wrote the reason above. `isaac-appo doctor` checks driver, GPU and Vulkan"
        )
    plane = gymapi.PlaneParams()
    plane.normal = gymapi.Vec3(0.0, 0.0, 1.0)
    plane.static_friction = plane.dynamic_friction = _FRICTION
    gym.add_ground(sim, plane)
    asset = _load_asset(gym, sim, spec, model)
    order = _dof_order(gym, asset, spec, model)
    _add_sensors(gym, asset, spec, model)
    actors = _add_actors(gym, sim, asset, spec, model, order)
    viewer = None if graphics < 0 else gym.create_viewer(sim, gymapi.CameraProperties())
    if graphics >= 0 and viewer is None:
        raise EngineError("Isaac Gym opened no viewer; it wrote the reason above. Without a screen, use headless=True")
    if not gym.prepare_sim(sim):
        raise EngineError("Isaac Gym could not prepare the simulation (prepare_sim); it wrote the reason above")
    return Scene(gym, sim, order, actors, viewer)


def _sim_params(spec: EngineSpec, model: Model) -> gymapi.SimParams:
    from isaacgym import gymapi

    options = spec.options
    params = gymapi.SimParams()
    params.dt, params.substeps = spec.control_dt, spec.substeps
    params.up_axis, params.gravity = gymapi.UP_AXIS_Z, gymapi.Vec3(*model.gravity)
    params.num_client_threads = int(options.get("num_client_threads", 0))
    params.use_gpu_pipeline = not spec.device.startswith("cpu")
    physx: Mapping[str, Any] = options.get("physx", {})
    for name, value in physx.items():
        setattr(params.physx, name, gymapi.ContactCollection(value) if name == "contact_collection" else value)
    return params


def _load_asset(gym: gymapi.Gym, sim: gymapi.Sim, spec: EngineSpec, model: Model) -> gymapi.Asset:
    from isaacgym import gymapi

    options = gymapi.AssetOptions()
    options.fix_base_link = model.map.num_roots == 0
    options.angular_damping = options.linear_damping = 0.0  # the model's joints have theirs
    options.default_dof_drive_mode = int(gymapi.DOF_MODE_EFFORT)
    folder, file = os.path.split(os.path.abspath(spec.model_path))
    asset = gym.load_asset(sim, folder, file, options)
    if asset is None:
        raise EngineError(f"Isaac Gym's importer does not read {spec.model_path!r}; it wrote the reason above")
    return asset


def _dof_order(gym: gymapi.Gym, asset: gymapi.Asset, spec: EngineSpec, model: Model) -> List[int]:
    """Where each dof of the contract is among Isaac Gym's. Names must be the same, and so must limits."""
    theirs, ours = list(gym.get_asset_dof_names(asset)), model.map.dof_names
    if sorted(theirs) != sorted(ours):
        raise EngineError(f"model {spec.model_path!r}: Isaac Gym reads the dofs {theirs}, MuJoCo {list(ours)}")
    order = [theirs.index(name) for name in ours]
    properties = gym.get_asset_dof_properties(asset)
    for kind, limits in (("lower", model.map.dof_lower), ("upper", model.map.dof_upper)):
        for name, at, limit in zip(ours, order, limits):
            if math.isfinite(limit) and abs(float(properties[kind][at]) - limit) > 1e-3:
                raise EngineError(
                    f"model {spec.model_path!r}: {kind} limit of {name!r} is {limit:.4f} in the file, and Isaac Gym "
                    f"reads {float(properties[kind][at]):.4f}; write angles in one unit, as <compiler angle=…/> says"
                )
    return order


def _add_sensors(gym: gymapi.Gym, asset: gymapi.Asset, spec: EngineSpec, model: Model) -> None:
    """A force sensor in the frame of each site, in the order of `spec.sites`."""
    from isaacgym import gymapi

    for site, body, pose in zip(spec.sites, model.site_bodies, model.site_poses):
        index = gym.find_asset_rigid_body_index(asset, body)
        local = gymapi.Transform(gymapi.Vec3(*pose[:3]), gymapi.Quat(*pose[3:]))
        if index < 0 or gym.create_asset_force_sensor(asset, index, local) < 0:
            raise EngineError(f"Isaac Gym makes no force sensor for site {site!r} on body {body!r}")


def _add_actors(
    gym: gymapi.Gym, sim: gymapi.Sim, asset: gymapi.Asset, spec: EngineSpec, model: Model, order: List[int]
) -> List[int]:
    """One env with one actor each; envs never touch. Returns the actors' indices in the simulation."""
    from isaacgym import gymapi

    properties = gym.get_asset_dof_properties(asset)
    properties["driveMode"].fill(int(gymapi.DOF_MODE_EFFORT))
    properties["effort"][order] = np.minimum(model.map.effort_limit, np.finfo(np.float32).max)
    low, high = gymapi.Vec3(-_SPACING, -_SPACING, 0.0), gymapi.Vec3(_SPACING, _SPACING, _SPACING)
    pose = gymapi.Transform(gymapi.Vec3(*model.root_pose[:3]), gymapi.Quat(*model.root_pose[3:]))
    per_row = math.ceil(math.sqrt(spec.num_envs))
    actors = []
    for n in range(spec.num_envs):
        env = gym.create_env(sim, low, high, per_row)
        # shapes of one collision group meet; a common bit of the filter keeps those of one actor apart
        actor = gym.create_actor(env, asset, pose, "robot", n, 0 if model.self_collides else 1)
        gym.set_actor_dof_properties(env, actor, properties)
        actors.append(gym.get_actor_index(env, actor, gymapi.DOMAIN_SIM))
    return actors
