"""The double of `isaacgym.gymapi`; its signatures are those of the `isaacgym-stubs` package."""

from __future__ import annotations

import enum
import os
from typing import Any, List, Optional

import mujoco
import numpy as np

from isaacgym.simulation import Double, Sim

INVALID_HANDLE = -1


class SimType(enum.IntEnum):
    SIM_PHYSX = 0
    SIM_FLEX = 1


class UpAxis(enum.IntEnum):
    UP_AXIS_Y = 0
    UP_AXIS_Z = 1


class IndexDomain(enum.IntEnum):
    DOMAIN_ACTOR = 0
    DOMAIN_ENV = 1
    DOMAIN_SIM = 2


class DofDriveMode(enum.IntEnum):
    DOF_MODE_NONE = 0
    DOF_MODE_POS = 1
    DOF_MODE_VEL = 2
    DOF_MODE_EFFORT = 3


class ContactCollection(enum.IntEnum):
    CC_NEVER = 0
    CC_LAST_SUBSTEP = 1
    CC_ALL_SUBSTEPS = 2


for _kind in (SimType, UpAxis, IndexDomain, DofDriveMode, ContactCollection):
    globals().update(_kind.__members__)


class _Fixed:
    """Attributes are those of the class: the real bindings refuse any other, too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not hasattr(self, name):
            raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")
        object.__setattr__(self, name, value)


class Vec3:
    def __init__(self, x: float = 0.0, y: float = 0.0, z: float = 0.0) -> None:
        self.x, self.y, self.z = x, y, z


class Quat:
    def __init__(self, x: float = 0.0, y: float = 0.0, z: float = 0.0, w: float = 1.0) -> None:
        self.x, self.y, self.z, self.w = x, y, z, w


class Transform:
    def __init__(self, p: Optional[Vec3] = None, r: Optional[Quat] = None) -> None:
        self.p, self.r = p or Vec3(), r or Quat()

    def row(self) -> List[float]:
        return [self.p.x, self.p.y, self.p.z, self.r.x, self.r.y, self.r.z, self.r.w]


class PhysXParams(_Fixed):
    always_use_articulations = False
    bounce_threshold_velocity = 0.2
    contact_collection = ContactCollection.CC_ALL_SUBSTEPS
    contact_offset = 0.02
    default_buffer_size_multiplier = 2.0
    friction_correlation_distance = 0.025
    friction_offset_threshold = 0.04
    max_depenetration_velocity = 100.0
    max_gpu_contact_pairs = 1024 * 1024
    num_position_iterations = 4
    num_subscenes = 0
    num_threads = 0
    num_velocity_iterations = 1
    rest_offset = 0.001
    solver_type = 1
    use_gpu = False


class SimParams(_Fixed):
    dt = 1.0 / 60.0
    gravity: Any = None
    num_client_threads = 0
    physx: Any = None
    substeps = 2
    up_axis = UpAxis.UP_AXIS_Y
    use_gpu_pipeline = False

    def __init__(self) -> None:
        self.gravity, self.physx = Vec3(0.0, -9.8, 0.0), PhysXParams()


class AssetOptions(_Fixed):
    angular_damping = 0.5
    default_dof_drive_mode = 0
    fix_base_link = False
    linear_damping = 0.0


class PlaneParams(_Fixed):
    dynamic_friction = 1.0
    normal: Any = None
    restitution = 0.0
    static_friction = 1.0


class CameraProperties(_Fixed):
    pass


class Tensor:
    """A description of a tensor; `owned` is the tensor itself where the simulation owns it."""

    def __init__(self) -> None:
        self.data_address, self.device, self.dtype, self.own_data, self.shape = 0, -1, "", False, ()
        self.owned: Any = None
        self.storage: Any = None
        self.offset, self.torch_dtype = 0, None


class Asset:
    def __init__(self, model: Any, options: AssetOptions) -> None:
        self.model, self.options, self.sensors = model, options, []
        kinds = (mujoco.mjtJoint.mjJNT_SLIDE.value, mujoco.mjtJoint.mjJNT_HINGE.value)
        self.dofs = [j for j in range(model.njnt) if model.jnt_type[j] in kinds]
        if Double.reverse_dofs:
            self.dofs.reverse()
        self.free = [j for j in range(model.njnt) if j not in self.dofs]


class Env:
    def __init__(self, sim: Sim) -> None:
        self.sim = sim


class Viewer:
    closed = False
    frames = 0


class Gym:
    """The calls that isaac_appo makes, by the names and with the parameters of the real class."""

    def create_sim(self, compute_device: int = 0, graphics_device: int = 0, type: Any = SimType.SIM_FLEX,
                   params: Any = None) -> Optional[Sim]:  # fmt: skip
        if type != SimType.SIM_PHYSX:
            raise RuntimeError("the tensor API works with PhysX only")
        if params.use_gpu_pipeline and not params.physx.use_gpu:
            raise RuntimeError("the GPU pipeline needs physx.use_gpu")
        if Double.sims:
            raise RuntimeError("a second simulation in one process")
        Double.sims += 1
        return Sim(compute_device, graphics_device, params)

    def add_ground(self, sim: Sim, params: PlaneParams) -> None:
        if (params.normal.x, params.normal.y, params.normal.z) != (0.0, 0.0, 1.0):
            raise RuntimeError("the double's ground looks up along z")
        sim.ground = True

    def load_asset(self, sim: Sim, rootpath: str, filename: str, options: Any = None) -> Optional[Asset]:
        model = mujoco.MjModel.from_xml_path(os.path.join(rootpath, filename))
        asset = Asset(model, options or AssetOptions())
        if bool(asset.free) == asset.options.fix_base_link:
            raise RuntimeError("a base is fixed if and only if it has no free joint")
        gravity = sim.params.gravity
        if not np.allclose(model.opt.gravity, [gravity.x, gravity.y, gravity.z]):
            raise RuntimeError("the model's gravity is not the simulation's")
        return asset

    def get_asset_dof_names(self, arg0: Asset) -> List[str]:
        return [arg0.model.joint(j).name for j in arg0.dofs]

    def get_asset_dof_properties(self, asset: Asset) -> Any:
        names = ("lower", "upper", "velocity", "effort", "stiffness", "damping", "friction", "armature")
        layout = [("hasLimits", "?"), ("driveMode", "<i4"), *((name, "<f4") for name in names)]
        found, model, dofs = np.zeros(len(asset.dofs), layout), asset.model, asset.dofs
        found["hasLimits"] = model.jnt_limited[dofs]
        found["lower"], found["upper"] = model.jnt_range[dofs].T
        found["driveMode"] = asset.options.default_dof_drive_mode
        return found

    def find_asset_rigid_body_index(self, arg0: Asset, arg1: str) -> int:
        return mujoco.mj_name2id(arg0.model, mujoco.mjtObj.mjOBJ_BODY.value, arg1) - 1

    def create_asset_force_sensor(self, asset: Asset, body_idx: int, local_pose: Transform, props: Any = None) -> int:
        model, pose = asset.model, local_pose.row()
        for s in range(model.nsite):
            same = np.allclose([*model.site_pos[s], *model.site_quat[s][[1, 2, 3, 0]]], pose, atol=1e-6)
            if model.site_bodyid[s] == body_idx + 1 and same:
                on_it = [i for i in range(model.nsensor) if model.sensor_objid[i] == s]
                by_kind = {int(model.sensor_type[i]): int(model.sensor_adr[i]) for i in on_it}
                kinds = (mujoco.mjtSensor.mjSENS_FORCE.value, mujoco.mjtSensor.mjSENS_TORQUE.value)
                asset.sensors.append([by_kind[kind] for kind in kinds])
                return len(asset.sensors) - 1
        return -1

    def create_env(self, arg0: Sim, arg1: Vec3, arg2: Vec3, arg3: int) -> Env:
        if arg0.prepared:
            raise RuntimeError("create_env after prepare_sim")
        return Env(arg0)

    def create_actor(
        self,
        env: Env,
        asset: Asset,
        pose: Transform,
        name: str = "",
        group: int = -1,
        filter: int = -1,
        segmentationId: int = 0,
    ) -> int:
        if group in env.sim.groups:
            raise RuntimeError(f"two envs in collision group {group} would collide")
        env.sim.assets.append(asset)
        env.sim.poses.append(pose.row())
        env.sim.groups.append(group)
        return 0

    def set_actor_dof_properties(self, arg0: Env, arg1: int, arg2: Any) -> bool:
        if not (arg2["driveMode"] == DofDriveMode.DOF_MODE_EFFORT).all():
            raise RuntimeError("efforts act on dofs in DOF_MODE_EFFORT only")
        return True

    def get_actor_index(self, arg0: Env, arg1: int, arg2: IndexDomain) -> int:
        if arg2 != IndexDomain.DOMAIN_SIM:
            raise RuntimeError("indexed setters take indices of DOMAIN_SIM")
        return len(arg0.sim.assets) - 1

    def prepare_sim(self, arg0: Sim) -> bool:
        if not arg0.ground:
            raise RuntimeError("no ground was added")
        arg0.prepare()
        return True

    def acquire_actor_root_state_tensor(self, arg0: Sim) -> Tensor:
        return arg0.acquire("root")

    def acquire_dof_state_tensor(self, arg0: Sim) -> Tensor:
        return arg0.acquire("dof")

    def acquire_force_sensor_tensor(self, arg0: Sim) -> Tensor:
        return arg0.acquire("sensor")

    def refresh_actor_root_state_tensor(self, arg0: Sim) -> bool:
        return arg0.refresh("root")

    def refresh_dof_state_tensor(self, arg0: Sim) -> bool:
        return arg0.refresh("dof")

    def refresh_force_sensor_tensor(self, arg0: Sim) -> bool:
        return arg0.refresh("sensor")

    def set_actor_root_state_tensor_indexed(self, arg0: Sim, arg1: Tensor, arg2: Tensor, arg3: int) -> bool:
        return arg0.set("root", arg1, arg2, arg3)

    def set_dof_state_tensor_indexed(self, arg0: Sim, arg1: Tensor, arg2: Tensor, arg3: int) -> bool:
        return arg0.set("dof", arg1, arg2, arg3)

    def set_dof_actuation_force_tensor(self, arg0: Sim, arg1: Tensor) -> bool:
        return arg0.set("effort", arg1)

    def simulate(self, arg0: Sim) -> None:
        arg0.apply()
        model = arg0.assets[0].model
        for data in arg0.data:
            data.qacc_warmstart[:] = 0.0
            mujoco.mj_step(model, data, arg0.params.substeps)
        arg0.publish()
        arg0.fetched = False

    def fetch_results(self, arg0: Sim, arg1: bool) -> None:
        arg0.fetched = True

    def create_viewer(self, arg0: Sim, arg1: CameraProperties) -> Optional[Viewer]:
        if arg0.graphics < 0:
            raise RuntimeError("a viewer needs a graphics device")
        return Viewer()

    def query_viewer_has_closed(self, arg0: Viewer) -> bool:
        return arg0.frames >= Double.viewer_closes_after

    def step_graphics(self, arg0: Sim) -> None:
        if arg0.graphics < 0 or not arg0.fetched:
            raise RuntimeError("graphics need a graphics device and fetched results")

    def draw_viewer(self, viewer: Viewer, sim: Sim, render_collision: bool = False) -> None:
        viewer.frames += 1

    def sync_frame_time(self, arg0: Sim) -> None:
        pass

    def destroy_viewer(self, arg0: Viewer) -> None:
        if arg0.closed:
            raise RuntimeError("the viewer is destroyed already")
        arg0.closed = True

    def destroy_sim(self, arg0: Sim) -> None:
        if arg0.closed:
            raise RuntimeError("the simulation is destroyed already")
        arg0.closed = True


_GYM = Gym()


def acquire_gym(*args: Any, **kwargs: Any) -> Gym:
    return _GYM
