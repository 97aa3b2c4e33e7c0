"""Composed YAML to a validated `RunConfig`: all errors at once, and a word on every option that has no effect."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any, Callable, Dict, Iterator, List, NamedTuple, Tuple

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isaac_appo.config.errors import ConfigError, Finding, show
from isaac_appo.config.minibatch import fit_minibatch
from isaac_appo.config.network import check_network
from isaac_appo.config.option import rules_of
from isaac_appo.config.read import Findings, MismatchError, convert, default_of, read_section
from isaac_appo.config.schema import CentralValueConfig, RunConfig
from isaac_appo.config.suggest import nearest_path, schema_paths

_PPO = "train.params.config"
_NUM_ENVS = "task.env.numEnvs"


class Check(NamedTuple):
    """A rule over several keys; skipped while one of `paths` has an error of its own."""

    paths: Tuple[str, ...]
    run: Callable[[RunConfig], Iterator[Any]]


_ERRORS: List[Check] = []
_WARNINGS: List[Check] = []


def _check(into: List[Check], *paths: str) -> Callable[[Any], Any]:
    def add(run: Any) -> Any:
        into.append(Check(paths, run))
        return run

    return add


def validate(cfg: DictConfig) -> Tuple[RunConfig, List[str]]:
    """Return the typed configuration and its warnings; `cfg` is left as it is.

    Raises ConfigError with every error found: types, ranges, choices, unknown keys and rules over several keys, a
    line each of the form `path = value: rule. Nearest fix`.
    """
    paths = schema_paths(RunConfig)
    found = Findings(lambda path: nearest_path(path, paths))
    config = read_section(RunConfig, _own_part(_plain(cfg)), "", found)
    config = _read_critic(config, found)
    for check in _ERRORS:
        if not found.bad.intersection(check.paths):
            found.errors.extend(check.run(config))
    if found.errors:
        raise ConfigError(_without_echoes(cfg, found.errors))
    for check in _WARNINGS:
        found.warnings.extend(check.run(config))
    if config.task.package:  # the package reads these
        found.warnings = [
            text for text in found.warnings if text.partition(" ")[0] not in (*_PASSED_ON, "force_render")
        ]
    return _resolve(config), found.warnings


def _plain(cfg: DictConfig) -> Any:
    """`cfg` as plain containers with every interpolation resolved."""
    try:
        return OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        path = getattr(error, "full_key", None) or "(top level)"
        reason = str(error).splitlines()[0]
        fix = "Give it a value or correct the reference"
        raise ConfigError([Finding(path, "(unresolved)", reason, fix)]) from error


_PASSED_ON = ("physics_engine", "pipeline", "graphics_device_id", "num_threads", "solver_type", "num_subscenes")


def _own_part(plain: Dict[str, Any]) -> Dict[str, Any]:
    """`plain` with the task section of another package, which only that package can check, set apart."""
    task = plain.get("task")
    if not isinstance(task, dict) or not task.get("package"):
        return plain
    tree = {key: value for key, value in task.items() if key != "package"}
    own = {"name": task.get("name"), "package": task["package"], "env": tree.get("env", {}), "tree": tree}
    return {**plain, "task": own}


def _read_critic(config: RunConfig, found: Findings) -> RunConfig:
    """The asymmetric critic's section, typed."""
    path, node = f"{_PPO}.central_value_config", config.ppo.central_value_config
    if node is None:
        return config
    critic = read_section(CentralValueConfig, node, path, found)
    if critic.network:
        found.errors.extend(check_network(critic.network, f"{path}.network", critic=True))
    params = replace(config.train.params, config=replace(config.ppo, central_value_config=critic))
    return replace(config, train=replace(config.train, params=params))


def _without_echoes(cfg: DictConfig, errors: List[Finding]) -> List[Finding]:
    """Drop errors of keys that only repeat another key's wrong value by interpolation."""
    own = [error for error in errors if not _is_reference(cfg, error.path)]
    values = [error.value for error in own]
    return [error for error in errors if error in own or error.value not in values]


def _is_reference(cfg: DictConfig, path: str) -> bool:
    parent, _, leaf = path.rpartition(".")
    node = OmegaConf.select(cfg, parent) if parent else cfg
    return isinstance(node, DictConfig) and leaf in node and OmegaConf.is_interpolation(node, leaf)


def _resolve(config: RunConfig) -> RunConfig:
    """Fill in the values that follow from others; every rule has been checked."""
    ppo, params, schedule = config.ppo, config.train.params, config.schedule
    num_envs = int(config.task.env["numEnvs"])
    names = (config.experiment, ppo.full_experiment_name, ppo.name)
    executor = "inline" if schedule.lag == 0 and schedule.name != "free" else "threads"
    asked = ppo.minibatch_size or ppo.minibatch_size_per_env * num_envs
    resolved = replace(ppo, minibatch_size=asked, num_actors=num_envs)
    return replace(
        config,
        task_name=config.task.name,
        num_envs=num_envs,
        max_iterations=_iterations(config, num_envs),
        experiment=next((name for name in names if name not in ("", config.task.name)), ""),
        checkpoint=config.checkpoint or (params.load_path if params.load_checkpoint else ""),
        wandb="online" if config.wandb_activate and config.wandb == "disabled" else config.wandb,
        schedule=schedule if schedule.executor != "auto" else replace(schedule, executor=executor),
        train=replace(config.train, params=replace(params, config=resolved)),
    )


def _is_count(value: Any) -> bool:
    try:
        return int(convert(value, int)) >= 1
    except MismatchError:
        return False


def _iterations(config: RunConfig, num_envs: int) -> int:
    """Updates until the first of max_iterations, max_epochs and max_frames; 0 when none limits the run."""
    ppo = config.ppo
    frames = math.ceil(ppo.max_frames / (num_envs * ppo.horizon_length))
    return min((limit for limit in (config.max_iterations, ppo.max_epochs, frames) if limit > 0), default=0)


@_check(_ERRORS, "num_envs", "task", "task.env")
def _num_envs(config: RunConfig) -> Iterator[Finding]:
    value = config.task.env.get("numEnvs", "(missing)")
    reference = "Write numEnvs: ${resolve_default:4096,${...num_envs}} in the task's YAML"
    if not _is_count(value):
        fix = reference if value == "(missing)" else "Use num_envs=4096"
        yield Finding(_NUM_ENVS, value, "must be a whole number of at least 1", fix)
    elif config.num_envs not in (0, value):
        yield Finding(_NUM_ENVS, value, f"does not follow num_envs={config.num_envs}", reference)
    elif config.ppo.num_actors not in (0, value):
        yield Finding(f"{_PPO}.num_actors", config.ppo.num_actors, f"must equal {_NUM_ENVS} = {value}", "Leave it out")


@_check(_ERRORS, "num_envs", _PPO, f"{_PPO}.minibatch_size", f"{_PPO}.minibatch_size_per_env")
def _minibatch(config: RunConfig) -> Iterator[Finding]:
    if not config.ppo.minibatch_size and not config.ppo.minibatch_size_per_env:
        yield Finding(f"{_PPO}.minibatch_size", 0, "is needed: rows per SGD step", "Use 4096")


@_check(_ERRORS, "max_iterations", _PPO, f"{_PPO}.max_epochs", f"{_PPO}.max_frames", f"{_PPO}.horizon_length")
def _limit(config: RunConfig) -> Iterator[Finding]:
    if not _iterations(config, 1):
        yield Finding(f"{_PPO}.max_epochs", config.ppo.max_epochs, "nothing ends the run", "Use max_iterations=500")


@_check(_ERRORS, "schedule.name", "schedule.lag")
def _lag(config: RunConfig) -> Iterator[Finding]:
    if config.schedule.name == "sync" and config.schedule.lag != 0:
        fix = f"Use schedule=lockstep schedule.lag={config.schedule.lag}, or schedule.lag=0"
        yield Finding("schedule.lag", config.schedule.lag, "must be 0 with schedule=sync", fix)


@_check(_ERRORS, "schedule.name", "schedule.max_policy_lag", "schedule.broadcast_every", "schedule.on_excess")
def _reachable(config: RunConfig) -> Iterator[Finding]:
    s = config.schedule
    if s.name == "free" and s.on_excess == "throttle" and s.max_policy_lag < s.broadcast_every - 1:
        rule = f"cannot be kept when the weights are published every {s.broadcast_every} updates only (needs at least "
        fix = f"Use {s.broadcast_every - 1}, or schedule.broadcast_every={s.max_policy_lag + 1}"
        yield Finding("schedule.max_policy_lag", s.max_policy_lag, f"{rule}{s.broadcast_every - 1})", fix)


@_check(_ERRORS, "schedule.fallback", "torch_deterministic")
def _fallback(config: RunConfig) -> Iterator[Finding]:
    if config.schedule.fallback == "auto" and config.torch_deterministic:
        rule = "decides by the clock what is trained on, which torch_deterministic rules out"
        yield Finding("schedule.fallback", "auto", rule, "Use schedule.fallback=warn")


@_check(_ERRORS, "schedule.name", "schedule.max_lead_steps", "schedule.broadcast_every", f"{_PPO}.horizon_length")
def _lead(config: RunConfig) -> Iterator[Finding]:
    s, least = config.schedule, config.schedule.broadcast_every * config.ppo.horizon_length
    if s.name == "free" and 0 < s.max_lead_steps < least:
        rule = f"must be 0 or at least broadcast_every * horizon_length = {least}, else the learner waits for ever"
        yield Finding("schedule.max_lead_steps", s.max_lead_steps, rule, f"Use {least}")


@_check(_ERRORS, "num_envs", "task", "task.env", "schedule.num_workers")
def _workers(config: RunConfig) -> Iterator[Finding]:
    workers, num_envs = config.schedule.num_workers, config.task.env.get("numEnvs", 1)
    if isinstance(num_envs, int) and workers > num_envs >= 1:
        rule = f"is more than there are environments ({num_envs})"
        yield Finding("schedule.num_workers", workers, rule, f"Use {num_envs}")


@_check(_ERRORS, "task", "schedule.num_workers", "sim.name", "eval", "capture_video")
def _one_simulation(config: RunConfig) -> Iterator[Finding]:
    """What a simulator that a process can have only once leaves no room for."""
    owner = config.task.package or ("Isaac Gym" if config.sim.name == "isaacgym" else "")
    if not owner:
        return
    rule = f"{owner} makes one simulation per process, and training has it"
    if config.schedule.num_workers > 1:
        yield Finding("schedule.num_workers", config.schedule.num_workers, f"must be 1: {rule}", "Use 1")
    if config.eval.every:
        yield Finding("eval.every", config.eval.every, f"must be 0: {rule}", "Use 0; it is evaluated at the end")
    if config.capture_video:
        yield Finding("capture_video", True, f"must be False: {rule}", "Use False")
    if config.task.package and config.sim.name != "auto":
        has = f"has no effect on a task of {owner}, which brings its own simulator"
        yield Finding("sim", config.sim.name, has, "Leave it out")


@_check(_ERRORS, "advantage.rho_bar", "advantage.c_bar")
def _caps(config: RunConfig) -> Iterator[Finding]:
    rho_bar, c_bar = config.advantage.rho_bar, config.advantage.c_bar
    if rho_bar < c_bar:
        yield Finding("advantage.c_bar", c_bar, f"must be at most advantage.rho_bar = {rho_bar}", f"Use {rho_bar}")


@_check(_ERRORS, f"{_PPO}.min_lr", f"{_PPO}.max_lr", f"{_PPO}.learning_rate")
def _learning_rates(config: RunConfig) -> Iterator[Finding]:
    ppo = config.ppo
    if ppo.min_lr > ppo.max_lr:
        yield Finding(f"{_PPO}.min_lr", ppo.min_lr, f"must be at most max_lr = {ppo.max_lr}", f"Use {ppo.max_lr}")


@_check(_ERRORS, f"{_PPO}.reward_shaper.min_val", f"{_PPO}.reward_shaper.max_val")
def _reward_clip(config: RunConfig) -> Iterator[Finding]:
    shaper = config.ppo.reward_shaper
    if shaper.min_val >= shaper.max_val:
        path = f"{_PPO}.reward_shaper.min_val"
        yield Finding(path, shaper.min_val, f"must be below max_val = {shaper.max_val}", "Leave both out")


@_check(_ERRORS, "resume", "checkpoint")
def _start(config: RunConfig) -> Iterator[Finding]:
    if config.checkpoint and config.resume not in ("auto", "never"):
        rule = "names a second start beside checkpoint (a run continues, or starts from weights)"
        yield Finding("resume", config.resume, rule, "Leave one of them out")


@_check(_ERRORS, "task", "task.task")
def _randomize(config: RunConfig) -> Iterator[Finding]:
    if config.task.task.get("randomize"):
        yield Finding("task.task.randomize", True, "domain randomisation is not supported yet", "Use False")


@_check(_ERRORS, "sim.name", "physics_engine", "task.physics_engine", "pipeline")
def _isaacgym(config: RunConfig) -> Iterator[Finding]:
    if config.sim.name != "isaacgym":
        return
    for path in ("physics_engine", "task.physics_engine"):
        if _at(config, path) != "physx":
            rule = "Isaac Gym's tensors, which sim=isaacgym is made of, work with PhysX only"
            yield Finding(path, _at(config, path), rule, "Use physx")
    if not config.task.sim.use_gpu_pipeline and config.pipeline == "gpu":
        yield Finding("task.sim.use_gpu_pipeline", False, "contradicts pipeline = gpu", "Use pipeline=cpu")


@_check(_ERRORS, "train.params.network")
def _network(config: RunConfig) -> Iterator[Finding]:
    yield from check_network(config.train.params.network)


@_check(_WARNINGS)
def _other_engines(config: RunConfig) -> Iterator[str]:
    for section, prefix in ((config, ""), (config.task, "task."), (config.task.sim, "task.sim.")):
        for item in fields(section):
            rules, value, default = rules_of(item), getattr(section, item.name), default_of(item)
            if rules.get("engine", config.sim.name) == config.sim.name or value == default:
                continue
            if is_dataclass(value):
                value = {k: v for k, v in vars(value).items() if v != getattr(default, k)}
            yield f"{prefix}{item.name} = {show(value)}: no effect, {rules['inert']}."


@_check(_WARNINGS)
def _minibatch_fit(config: RunConfig) -> Iterator[str]:
    ppo, num_envs = config.ppo, int(config.task.env["numEnvs"])
    batch = num_envs * ppo.horizon_length
    asked = ppo.minibatch_size or ppo.minibatch_size_per_env * num_envs
    size, count, padded = fit_minibatch(batch, asked)
    if size != asked:
        tail = f", {padded} of them padding" if padded else ""
        sgd = "1 minibatch" if count == 1 else f"{count} minibatches"
        yield f"{_PPO}.minibatch_size = {asked}: {batch} rows per update make {sgd} of {size} rows{tail}."


@_check(_WARNINGS)
def _on_policy(config: RunConfig) -> Iterator[str]:
    on_policy = config.schedule.lag == 0 and config.schedule.name != "free"
    if on_policy and config.advantage.name == "vtrace":
        yield "advantage = vtrace: no effect at lag 0, where V-trace on policy equals GAE."
    if on_policy and config.loss.w_max != 2.0:
        yield f"loss.w_max = {config.loss.w_max}: no effect at lag 0, where every weight is 1."


@_check(_WARNINGS)
def _devices(config: RunConfig) -> Iterator[str]:
    for name in ("device", "device_name"):
        value = getattr(config.ppo, name)
        if value not in ("", config.rl_device):
            yield f"{_PPO}.{name} = {value}: no effect, the device is rl_device = {config.rl_device}."


@_check(_WARNINGS)
def _wandb(config: RunConfig) -> Iterator[str]:
    """A group is passed over: a sweep gives its runs one, whether they log to W&B or not."""
    if config.wandb != "disabled" or config.wandb_activate:
        return
    for name in ("name", "entity", "project", "tags", "logcode_dir", "artifacts"):
        key = f"wandb_{name}"
        if getattr(config, key) != getattr(RunConfig(), key):
            yield f"{key} = {getattr(config, key)}: no effect, wandb is disabled."


_TRAINING_ENVS = "Isaac Gym makes one simulation per process, so the training environments are evaluated"
_FREE = ("max_policy_lag", "max_lead_steps", "broadcast_every", "on_excess")


@_check(_WARNINGS)
def _combinations(config: RunConfig) -> Iterator[str]:
    """Keys that another key switches off: warned about where they were given another value than their default."""
    ppo, fresh = config.ppo, RunConfig()
    switched_off = (
        (config.schedule.name != "free", "schedule", _FREE, f"schedule={config.schedule.name} has no such limit"),
        (config.schedule.name == "free", "schedule", ("lag",), "schedule=free is bounded by max_policy_lag"),
        (config.schedule.name != "lockstep", "schedule", ("fallback",), "only schedule=lockstep falls back to turns"),
        (config.schedule.executor not in ("auto", "cuda"), "schedule", ("graphs",), "executor is not cuda"),
        (config.advantage.name == "gae", "advantage", ("rho_bar", "c_bar"), "advantage=gae has no caps"),
        (config.loss.name == "behaviour", "loss", ("w_max",), "loss=behaviour has no weights"),
        (not (config.eval.enabled or config.eval.every), "eval", ("num_envs",), "eval.enabled is False"),
        (not config.capture_video, "", ("capture_video_freq", "capture_video_len"), "capture_video is False"),
        (config.sim.name == "mujoco", "sim", ("nconmax", "njmax"), "the model's <size memory> is the limit"),
        (config.sim.name == "mujoco_warp", "sim", ("threads",), "sim=mujoco_warp has none"),
        (config.sim.name == "isaacgym", "sim", ("threads",), "PhysX has num_threads"),
        (config.sim.name == "isaacgym" and not config.test, "eval", ("num_envs", "seed"), _TRAINING_ENVS),
        (bool(config.task.package), "eval", ("num_envs", "seed"), "the training environments are played in"),
        (not config.task.package, "env", ("autoreset",), "our own tasks are next_step"),
        (ppo.central_value_config is None, _PPO, ("use_experimental_cv",), "there is no central_value_config"),
        (config.report.console in ("rich", "off"), "report", ("interval",), "it is for plain lines"),
        (ppo.lr_schedule != "adaptive", _PPO, ("min_lr", "max_lr"), "lr_schedule is not adaptive"),
        (ppo.lr_schedule != "adaptive", _PPO, ("kl_threshold", "schedule_type"), "lr_schedule is not adaptive"),
        (not ppo.truncate_grads, _PPO, ("grad_norm",), "truncate_grads is False"),
        (ppo.bounds_loss_coef == 0, _PPO, ("bound_loss_type",), "bounds_loss_coef is 0"),
        (ppo.minibatch_size > 0, _PPO, ("minibatch_size_per_env",), "minibatch_size wins"),
    )
    for off, section, names, reason in switched_off:
        for name in names:
            path = f"{section}.{name}".lstrip(".")
            if off and _at(config, path) != _at(fresh, path):
                yield f"{path} = {_at(config, path)}: no effect, {reason}."


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config
