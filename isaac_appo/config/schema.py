"""The typed configuration: every key, its default, its meaning and the values it takes.

`isaac_appo.config.validate.validate` turns the composed YAML into a `RunConfig` and is the only intended maker of one.
Names follow IsaacGymEnvs (top level, `task`) and rl_games (`train.params`); a key marked inert is accepted so that
their files and command lines work, and warned about when it asks for something that does not happen here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Dict, List, Optional

from isaac_appo.config.option import option

_DEVICE = {"pattern": r"auto|cpu|cuda(:\d+)?", "rule": "must be auto, cpu, cuda or cuda:N"}
_PHYSX = "only Isaac Gym's PhysX reads it"


@dataclass(frozen=True)
class PhysxConfig:
    """`task.sim.physx`: Isaac Gym's PhysX, with the numbers that IsaacGymEnvs' tasks give; None = the top-level key."""

    num_threads: Optional[int] = option(None, "CPU threads", ge=0)
    solver_type: Optional[int] = option(None, "0 PGS, 1 TGS", ge=0, le=1)
    num_subscenes: Optional[int] = option(None, "subscenes on the CPU", ge=0)
    use_gpu: bool = option(False, "copy of sim_device", silent=True)
    num_position_iterations: int = option(4, "position iterations of the solver", ge=1, le=255)
    num_velocity_iterations: int = option(0, "velocity iterations of the solver", ge=0, le=255)
    contact_offset: float = option(0.02, "m, distance at which contacts are made", gt=0)
    rest_offset: float = option(0.0, "m, distance at which shapes rest")
    bounce_threshold_velocity: float = option(0.2, "m/s, slower contacts do not bounce", ge=0)
    max_depenetration_velocity: float = option(10.0, "m/s, fastest that overlap is undone", gt=0)
    default_buffer_size_multiplier: float = option(5.0, "size of the GPU buffers", gt=0)
    max_gpu_contact_pairs: int = option(8388608, "contact pairs that the GPU holds", ge=1)
    contact_collection: int = option(0, "0 never, 1 last substep, 2 all substeps", ge=0, le=2)
    friction_offset_threshold: float = option(0.04, "m, distance at which friction starts", gt=0)
    friction_correlation_distance: float = option(0.025, "m, contacts this near share friction", gt=0)
    always_use_articulations: bool = option(False, "articulations for single bodies too")


@dataclass(frozen=True)
class TaskSimConfig:
    """`task.sim`: the clock of the physics."""

    dt: float = option(0.0166, "s, one env step", gt=0, le=1)
    substeps: int = option(2, "physics steps per env step", ge=1, le=1000)
    up_axis: str = option("z", "the world's up axis", choices=("z",))
    gravity: List[float] = option([0.0, 0.0, -9.81], "m/s^2", refused="gravity is part of the task's model")
    use_gpu_pipeline: bool = option(True, "see pipeline", engine="isaacgym", inert=_PHYSX)
    num_client_threads: int = option(0, "client threads of Isaac Gym", ge=0, engine="isaacgym", inert=_PHYSX)
    physx: PhysxConfig = option(PhysxConfig, "PhysX settings", engine="isaacgym", inert=_PHYSX)
    flex: Dict[str, Any] = option({}, "Flex settings", inert="only Isaac Gym's Flex reads it")


@dataclass(frozen=True)
class TaskConfig:
    """`task`: one robot and its job."""

    name: str = option("", "the task", required=True)
    module: str = option("", "Python module of a task of your own, with a class of the task's name", null="")
    env: Dict[str, Any] = option({}, "the task's own settings; the task checks them", required=True)
    sim: TaskSimConfig = option(TaskSimConfig, "the clock of the physics")
    physics_engine: str = option("physx", "Isaac Gym's", engine="isaacgym", inert="the engine is chosen by sim")
    task: Dict[str, Any] = option({}, "domain randomisation")
    play: Dict[str, Any] = option({}, "task.env settings that replace the task's own while it is played: noise off")
    package: str = option("", "the package that brings the task, set by task=PACKAGE:NAME", silent=True)
    tree: Dict[str, Any] = option({}, "the package's own task section", silent=True)

    @property
    def label(self) -> str:
        """Names the task among those of all packages."""
        return f"{self.package}_{self.name}" if self.package else self.name

    @property
    def path(self) -> str:
        """What `tasks.registry.task_class` finds it by."""
        return f"{self.module}:{self.name}" if self.module else self.name


@dataclass(frozen=True)
class SimConfig:
    """`sim`: the physics engine."""

    name: str = option("auto", "engine", choices=("auto", "mujoco", "mujoco_warp", "isaacgym"))
    threads: int = option(0, "CPU threads of the engine, 0 = schedule.policy_threads", ge=0, le=1024)
    nconmax: int = option(0, "mujoco_warp: contacts per environment to make room for, 0 = from the model", ge=0)
    njmax: int = option(0, "mujoco_warp: constraints per environment to make room for, 0 = from the model", ge=0)


@dataclass(frozen=True)
class AlgoConfig:
    """`train.params.algo`."""

    name: str = option("a2c_continuous", "algorithm", choices=("a2c_continuous", "appo_continuous"))


@dataclass(frozen=True)
class ModelConfig:
    """`train.params.model`."""

    name: str = option("continuous_a2c_logstd", "model", choices=("continuous_a2c_logstd",))


@dataclass(frozen=True)
class RewardShaperConfig:
    """`train.params.config.reward_shaper`: reward the learner sees = clip((r + shift) * scale)."""

    scale_value: float = option(1.0, "factor")
    shift_value: float = option(0.0, "offset, added before scaling")
    min_val: float = option(-math.inf, "lower clip", infinite=True)
    max_val: float = option(math.inf, "upper clip", infinite=True)
    log_val: bool = option(False, "take the logarithm")


@dataclass(frozen=True)
class CentralValueConfig:
    """`train.params.config.central_value_config`: the asymmetric critic, trained on the policy's minibatches."""

    network: Dict[str, Any] = option({}, "rl_games' network block", required=True)
    learning_rate: float = option(3e-4, "initial learning rate", gt=0, le=1)
    lr_schedule: str = option(
        "constant",
        "linear, or constant: rl_games has no other for it",
        choices=("constant", "linear"),
        null="constant",
        alias={"adaptive": "constant", "fixed": "constant", "identity": "constant", "None": "constant"},
    )
    normalize_input: bool = option(True, "running mean and std of states")
    clip_value: bool = option(True, "clip the value loss")
    e_clip: float = option(0.2, "clip of the value", gt=0)
    truncate_grads: bool = option(False, "clip the gradient's norm to grad_norm")
    grad_norm: float = option(1.0, "that norm", gt=0)
    weight_decay: float = option(0.0, "Adam's L2 penalty", ge=0)
    minibatch_size: int = option(0, "the policy's are used", silent=True)
    minibatch_size_per_env: int = option(0, "the policy's are used", silent=True)
    mini_epochs: int = option(0, "the policy's are used", silent=True)
    schedule_type: str = option("legacy", "nothing adapts", silent=True)
    kl_threshold: float = option(0.008, "nothing adapts", silent=True)
    freeze_critic: bool = option(False, "freeze the critic", refused="not supported")
    mixed_precision: bool = option(False, "float16 on CUDA", inert="float32 is used")


@dataclass(frozen=True)
class PPOConfig:
    """`train.params.config`: rl_games' keys and meanings."""

    horizon_length: int = option(16, "T, env steps per update and environment", ge=1, required=True)
    mini_epochs: int = option(4, "passes over a batch", ge=1, required=True)
    minibatch_size: int = option(0, "rows per SGD step asked for; the size that fits is used", ge=0)
    minibatch_size_per_env: int = option(0, "the same, per environment", ge=0)
    gamma: float = option(0.99, "discount", ge=0, le=1)
    tau: float = option(0.95, "lambda of GAE and V-trace", ge=0, le=1)
    learning_rate: float = option(3e-4, "initial learning rate", gt=0, le=1)
    lr_schedule: str = option(
        "adaptive",
        "learning-rate schedule",
        choices=("adaptive", "linear", "constant"),
        null="constant",
        alias={"fixed": "constant", "identity": "constant", "None": "constant", "none": "constant"},
    )
    schedule_type: str = option(
        "legacy", "legacy: adapt the rate every minibatch; standard: every mini-epoch", choices=("legacy", "standard")
    )
    kl_threshold: float = option(0.008, "KL the adaptive schedule steers to", gt=0)
    min_lr: float = option(1e-6, "lower bound of the adaptive schedule", gt=0)
    max_lr: float = option(1e-2, "upper bound of the adaptive schedule", gt=0)
    e_clip: float = option(0.2, "clip of the probability ratio and of the value", gt=0)
    clip_value: bool = option(True, "clip the value loss")
    critic_coef: float = option(2.0, "weight of the value loss", ge=0)
    entropy_coef: float = option(0.0, "weight of the entropy bonus", ge=0)
    bounds_loss_coef: float = option(0.0, "weight of the loss on means outside the action range", ge=0, null=0.0)
    bound_loss_type: str = option("bound", "shape of that loss", choices=("bound", "regularisation"))
    truncate_grads: bool = option(False, "clip the gradient's norm to grad_norm")
    grad_norm: float = option(1.0, "that norm", gt=0)
    weight_decay: float = option(0.0, "Adam's L2 penalty", ge=0)
    normalize_input: bool = option(True, "running mean and std of observations")
    normalize_value: bool = option(False, "running mean and std of returns")
    normalize_advantage: bool = option(True, "standardise advantages over the batch's live rows")
    value_bootstrap: bool = option(True, "time-outs bootstrap from the final observation's value")
    reward_shaper: RewardShaperConfig = option(RewardShaperConfig, "scales the reward the learner sees")
    clip_actions: bool = option(True, "clamp actions to [-1, 1] before the env")
    shuffle_minibatches: bool = option(False, "draw rows at random instead of env-major runs")
    num_actors: int = option(0, "environments; must equal task.env.numEnvs", ge=0)
    max_epochs: int = option(-1, "updates, -1 = no limit", ge=-1)
    max_frames: int = option(-1, "env steps, -1 = no limit", ge=-1)
    score_to_win: float = option(math.inf, "stop at this mean episode reward", infinite=True, null=math.inf)
    save_frequency: int = option(50, "updates between checkpoints, 0 = only the last", ge=0)
    save_best_after: int = option(100, "updates before the best policy is kept", ge=0)
    games_to_track: int = option(100, "episodes in the running means", ge=1)
    name: str = option("", "names the run when experiment is empty", null="")
    full_experiment_name: str = option("", "names the run when experiment is empty", null="")

    env_name: str = option("rlgpu", "the environment's name in rl_games' registry", inert="the environment is the task")
    device: str = option("", "device; rl_device says it", null="", silent=True)
    device_name: str = option("", "the same, for rl_games' player", null="", silent=True)
    ppo: bool = option(True, "PPO", refused="this trainer is PPO")
    multi_gpu: bool = option(False, "several GPUs", refused="not supported yet")
    mixed_precision: bool = option(False, "bfloat16 for the networks; probabilities, targets and losses stay float32")
    torch_compile: bool = option(False, "torch.compile", inert="nothing is compiled", null=False)
    print_stats: bool = option(True, "console", inert="the console is set by report.console")
    use_diagnostics: bool = option(False, "extra statistics", inert="they are always logged")
    seq_length: int = option(4, "chunk of a recurrent policy", ge=1, inert="the network is not recurrent")
    seq_len: int = option(4, "old name of seq_length", ge=1, inert="the network is not recurrent")
    bptt_length: int = option(0, "unused by rl_games too", ge=0, inert="nothing reads it")
    zero_rnn_on_done: bool = option(True, "recurrent policies", inert="the network is not recurrent")
    epochs_between_resets: int = option(0, "forced resets", inert="environments are never reset from outside")
    train_dir: str = option("", "run folder", inert="the folder is set by run_root", alias={"runs": ""})
    use_experimental_cv: bool = option(True, "train the policy's own value head beside an asymmetric critic")
    freeze_critic: bool = option(False, "freeze the critic", refused="not supported")
    pbt_idx: Optional[int] = option(None, "population training", inert="there is no population")
    player: Dict[str, Any] = option({}, "rl_games' player", inert="it concerns rl_games' own player")
    env_config: Dict[str, Any] = option({}, "environment arguments", inert="the task's settings are task.env")
    features: Dict[str, Any] = option({}, "rl_games' features", refused="not supported")
    central_value_config: Optional[CentralValueConfig] = option(
        None, "asymmetric critic: a CentralValueConfig, None = none"
    )
    self_play_config: Optional[Dict[str, Any]] = option(None, "self-play", refused="not supported")
    use_action_masks: bool = option(False, "masked actions", refused="not supported")
    population_based_training: bool = option(False, "population training", refused="not supported")
    use_smooth_clamp: bool = option(False, "smooth clipping", refused="not supported")
    normalize_rms_advantage: bool = option(False, "running advantage statistics", refused="not supported")
    schedule_entropy: bool = option(False, "entropy schedule", refused="not supported")
    max_steps: int = option(-1, "steps", refused="not supported; limit the run by max_frames", alias={0: -1})


@dataclass(frozen=True)
class ParamsConfig:
    """`train.params`: a whole rl_games file."""

    seed: int = option(42, "copy of the top-level seed", silent=True)
    algo: AlgoConfig = option(AlgoConfig, "algorithm")
    model: ModelConfig = option(ModelConfig, "model")
    network: Dict[str, Any] = option({}, "rl_games' network block", required=True)
    load_checkpoint: bool = option(False, "start from load_path", null=False)
    load_path: str = option("", "weights to start from", null="")
    torch_threads: Any = option("auto", "threads", inert="schedule.policy_threads and learner_threads set them")
    config: PPOConfig = option(PPOConfig, "PPO", required=True)


@dataclass(frozen=True)
class TrainConfig:
    """`train`."""

    params: ParamsConfig = option(ParamsConfig, "a whole rl_games file", required=True)


@dataclass(frozen=True)
class ScheduleConfig:
    """`schedule`: who may run ahead of whom."""

    name: str = option(
        "lockstep", "sync: in turns; lockstep: fixed lag; free: under limits", choices=("sync", "lockstep", "free")
    )
    lag: int = option(1, "lockstep: updates between a slab's policy and the update that trains on it", ge=0, le=8)
    max_policy_lag: int = option(1, "free: greatest lag of a row that may be trained on, in updates", ge=0)
    max_lead_steps: int = option(
        0, "free: env steps a worker may be ahead of consumption, 0 = 2 * broadcast_every * horizon_length", ge=0
    )
    broadcast_every: int = option(1, "free: updates between publications of the weights", ge=1)
    on_excess: str = option(
        "throttle", "free: what becomes of rows over max_policy_lag", choices=("throttle", "mask", "drop")
    )
    num_workers: int = option(1, "shards of the environments, each with its own stream and slabs", ge=1)
    executor: str = option(
        "auto",
        "what interprets the program; auto = cuda where the tensors are on a GPU, else inline at lag 0, else threads",
        choices=("auto", "inline", "threads", "cuda"),
    )
    graphs: bool = option(True, "executor cuda: replay rollouts and minibatches as CUDA graphs")
    policy_threads: int = option(0, "threads of each policy stream, 0 = chosen for this machine", ge=0, le=1024)
    learner_threads: int = option(0, "threads of the learner stream, 0 = chosen for this machine", ge=0, le=1024)
    fallback: str = option(
        "warn",
        "when overlap does not pay; warn: say so, auto: go on in turns, lockstep only",
        choices=("warn", "auto"),
    )

    @property
    def limit(self) -> str:
        """The lag that rows are trained at, in words."""
        return f"lag <= {self.max_policy_lag}" if self.name == "free" else f"lag {self.lag}"


@dataclass(frozen=True)
class AdvantageConfig:
    """`advantage`: how targets are made from a slab."""

    name: str = option("vtrace", "estimator", choices=("gae", "vtrace"))
    rho_bar: float = option(3.0, "V-trace: cap on the weight of a temporal-difference error", gt=0)
    c_bar: float = option(3.0, "V-trace: cap on how far corrections travel", gt=0)


@dataclass(frozen=True)
class LossConfig:
    """`loss`: which policy the clip is anchored at."""

    name: str = option("decoupled", "loss", choices=("decoupled", "behaviour"))
    w_max: float = option(2.0, "decoupled: cap on the weight pi_prox / mu", ge=1)


@dataclass(frozen=True)
class EnvConfig:
    """`env`: what the trainer does to every task."""

    stagger_resets: bool = option(True, "spread the ages of the first episodes")
    autoreset: str = option(
        "auto",
        "when a task of another package resets what is done; auto = by its class",
        choices=("auto", "next_step", "next_step_pre", "same_step", "manual"),
    )
    max_nan_fraction: float = option(0.01, "share of environments that may break in one update", ge=0, le=1)


@dataclass(frozen=True)
class ReportConfig:
    """`report`: what a run shows and stores."""

    console: str = option("auto", "auto = rich on a terminal, else plain", choices=("auto", "rich", "plain", "off"))
    interval: float = option(5.0, "s between plain lines", gt=0)
    tensorboard: bool = option(True, "write TensorBoard files")
    plot: bool = option(True, "draw the reward curve at the end")
    trace: bool = option(False, "write trace.json and trace.png, a timeline of some updates")
    trace_updates: int = option(20, "updates in the timeline", ge=1, le=1000)


@dataclass(frozen=True)
class EvalConfig:
    """`eval`: one full deterministic episode per environment, at the end and during training."""

    enabled: bool = option(True, "evaluate at the end of training")
    every: int = option(0, "updates between evaluations beside training, which then choose the best; 0 = none", ge=0)
    num_envs: int = option(128, "episodes", ge=1)
    seed: int = option(1234567, "seed of the evaluation", ge=0)


@dataclass(frozen=True)
class RunConfig:
    """One run, validated: ranges hold, `num_envs`, `max_iterations`, `experiment` and `checkpoint` are resolved."""

    task_name: str = option("", "copy of task.name", silent=True)
    experiment: str = option(
        "", "names the run folder", pattern=r"[A-Za-z0-9._-]*", rule="may hold letters, digits, '.', '_' and '-'"
    )
    num_envs: int = option(0, "environments; '' = the task's own number", ge=1, alias={"": 0})
    seed: int = option(42, "seed of everything, -1 = draw one and print it", ge=-1, lt=2**31)
    torch_deterministic: bool = option(False, "refuse non-deterministic kernels")
    max_iterations: int = option(0, "updates; '' = the train YAML's max_epochs", ge=1, alias={"": 0})
    sim_device: str = option("auto", "device of the physics", **_DEVICE)
    rl_device: str = option("auto", "device of the policy and the learner", **_DEVICE)
    headless: bool = option(True, "no viewer", engine="isaacgym", inert="there is no viewer yet")
    test: bool = option(False, "play a checkpoint instead of training")
    checkpoint: str = option("", "start from these weights", null="")
    resume: str = option("auto", "auto | never | a run folder or checkpoint to continue", pattern=".+", rule="is empty")
    run_root: str = option("runs", "where run folders go", pattern=".+", rule="is empty")
    keep_checkpoints: int = option(3, "checkpoints kept; the newest may be half written, so 2 at least", ge=2)
    task: TaskConfig = option(TaskConfig, "one robot and its job", required=True)
    train: TrainConfig = option(TrainConfig, "algorithm, in rl_games' schema", required=True)
    sim: SimConfig = option(SimConfig, "physics engine")
    schedule: ScheduleConfig = option(ScheduleConfig, "who may run ahead of whom")
    advantage: AdvantageConfig = option(AdvantageConfig, "how targets are made")
    loss: LossConfig = option(LossConfig, "which policy the clip is anchored at")
    env: EnvConfig = option(EnvConfig, "what the trainer does to every task")
    report: ReportConfig = option(ReportConfig, "what a run shows and stores")
    eval: EvalConfig = option(EvalConfig, "evaluation")

    physics_engine: str = option("physx", "Isaac Gym's", engine="isaacgym", inert="the engine is chosen by sim")
    pipeline: str = option(
        "gpu",
        "gpu: Isaac Gym's tensors are where PhysX is; cpu: on the CPU",
        choices=("gpu", "cpu"),
        engine="isaacgym",
        inert="tensors stay on the device they are made on",
    )
    graphics_device_id: int = option(0, "viewer", ge=-1, engine="isaacgym", inert="there is no viewer yet")
    num_threads: int = option(
        4, "PhysX threads", ge=0, engine="isaacgym", inert=f"{_PHYSX}; the embedded engine has sim.threads"
    )
    solver_type: int = option(1, "PhysX solver", ge=0, le=1, engine="isaacgym", inert=_PHYSX)
    num_subscenes: int = option(4, "PhysX subscenes", ge=0, engine="isaacgym", inert=_PHYSX)
    force_render: bool = option(True, "viewer", inert="there is no viewer yet")
    sigma: str = option("", "player's noise", inert="evaluation is deterministic")
    multi_gpu: bool = option(False, "several GPUs", refused="not supported yet")
    capture_video: bool = option(False, "film the policy now and then, beside training, into videos/ of the run")
    capture_video_freq: int = option(1464, "env steps (of one environment) between films", ge=1)
    capture_video_len: int = option(100, "env steps in a film", ge=1)
    wandb: str = option("disabled", "log to Weights & Biases", choices=("online", "offline", "disabled"))
    wandb_activate: bool = option(False, "IsaacGymEnvs' way to say wandb=online")
    wandb_group: str = option("", "group of runs", null="")
    wandb_name: str = option("", "the run's name, '' = TASK-EXPERIMENT-sSEED", null="")
    wandb_entity: str = option("", "user or team, '' = your default", null="")
    wandb_project: str = option("isaac_appo", "project", pattern=".+", rule="is empty")
    wandb_tags: List[str] = option([], "tags")
    wandb_logcode_dir: str = option("", "store the code of this folder", null="")
    wandb_artifacts: bool = option(False, "store the best checkpoint and videos")

    @property
    def ppo(self) -> PPOConfig:
        """`train.params.config`, which the algorithm reads most."""
        return self.train.params.config
