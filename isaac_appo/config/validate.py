"""Composed YAML to a validated `RunConfig`: all errors at once, and a word on every option that has no effect."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass, replace
from typing import Any, Dict, Iterator, List, Tuple

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from isaac_appo.config.errors import ConfigError, Finding, show
from isaac_appo.config.minibatch import fit_minibatch
from isaac_appo.config.network import check_network
from isaac_appo.config.option import rules_of, walk
from isaac_appo.config.read import Findings, MismatchError, convert, default_of, read_section
from isaac_appo.config.schema import RunConfig
from isaac_appo.config.suggest import nearest_path

_PPO = "train.params.config"
_NUM_ENVS = "task.env.numEnvs"

Broken = Tuple[str, Finding]
"""What breaks a rule over several keys, after the keys that the rule reads beside its own."""


def validate(cfg: DictConfig) -> Tuple[RunConfig, List[str]]:
    """Return the typed configuration and its warnings; `cfg` is left as it is.

    Raises ConfigError with every error found: types, ranges, choices, unknown keys and rules over several keys, a
    line each of the form `path = value: rule. Nearest fix`.
    """
    paths = [path for path, *_ in walk(RunConfig)]
    found = Findings(lambda path: nearest_path(path, paths))
    config = read_section(RunConfig, _own_part(_plain(cfg)), "", found)
    bad = {finding.path for finding in found.errors}  # what has a fault of its own is no ground for another
    broken = [(reads, finding) for rules in _RULES for reads, finding in rules(config)]
    found.errors += [finding for reads, finding in broken if not bad.intersection((finding.path, *reads.split()))]
    if found.errors:
        raise ConfigError(_without_echoes(cfg, found.errors))
    warnings = found.warnings + [text for warn in _WARNINGS for text in warn(config)]
    if config.task.package:  # the package reads these
        warnings = [text for text in warnings if text.partition(" ")[0] not in _PASSED_ON]
    return _resolve(config), warnings


def _plain(cfg: DictConfig) -> Any:
    """`cfg` as plain containers with every interpolation resolved."""
    try:
        return OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    except OmegaConfBaseException as error:
        path = getattr(error, "full_key", None) or "(top level)"
        reason = str(error).splitlines()[0]
        fix = "Give it a value or correct the reference"
        raise ConfigError([Finding(path, "(unresolved)", reason, fix)]) from error


_PASSED_ON = frozenset(
    ("physics_engine", "pipeline", "graphics_device_id", "num_threads", "solver_type", "num_subscenes", "force_render")
)


def _own_part(plain: Dict[str, Any]) -> Dict[str, Any]:
    """`plain` with the task section of another package, which only that package can check, set apart."""
    task = plain.get("task")
    if not isinstance(task, dict) or not task.get("package"):
        return plain
    tree = {key: value for key, value in task.items() if key != "package"}
    own = {"name": task.get("name"), "package": task["package"], "env": tree.get("env", {}), "tree": tree}
    return {**plain, "task": own}


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


def _size_rules(config: RunConfig) -> Iterator[Broken]:
    ppo, value = config.ppo, config.task.env.get("numEnvs", "(missing)")
    reads, reference = (
        "num_envs task task.env",
        "Write numEnvs: ${resolve_default:4096,${...num_envs}} in the task's YAML",
    )
    if not _is_count(value):
        fix = reference if value == "(missing)" else "Use num_envs=4096"
        yield reads, Finding(_NUM_ENVS, value, "must be a whole number of at least 1", fix)
    elif config.num_envs not in (0, value):
        yield reads, Finding(_NUM_ENVS, value, f"does not follow num_envs={config.num_envs}", reference)
    elif ppo.num_actors not in (0, value):
        rule = f"must equal {_NUM_ENVS} = {value}"
        yield reads, Finding(f"{_PPO}.num_actors", ppo.num_actors, rule, "Leave it out")
    if not ppo.minibatch_size and not ppo.minibatch_size_per_env:
        reads = f"num_envs {_PPO} {_PPO}.minibatch_size_per_env"
        yield reads, Finding(f"{_PPO}.minibatch_size", 0, "is needed: rows per SGD step", "Use 4096")
    if not _iterations(config, 1):
        reads = f"max_iterations {_PPO} {_PPO}.max_frames {_PPO}.horizon_length"
        yield reads, Finding(f"{_PPO}.max_epochs", ppo.max_epochs, "nothing ends the run", "Use max_iterations=500")


def _schedule_rules(config: RunConfig) -> Iterator[Broken]:
    s, num_envs = config.schedule, config.task.env.get("numEnvs", 1)
    if s.name == "sync" and s.lag != 0:
        fix = f"Use schedule=lockstep schedule.lag={s.lag}, or schedule.lag=0"
        yield "schedule.name", Finding("schedule.lag", s.lag, "must be 0 with schedule=sync", fix)
    if s.name == "free" and s.on_excess == "throttle" and s.max_policy_lag < s.broadcast_every - 1:
        reads = "schedule.name schedule.broadcast_every schedule.on_excess"
        rule = f"cannot be kept when the weights are published every {s.broadcast_every} updates only (needs at least "
        fix = f"Use {s.broadcast_every - 1}, or schedule.broadcast_every={s.max_policy_lag + 1}"
        yield reads, Finding("schedule.max_policy_lag", s.max_policy_lag, f"{rule}{s.broadcast_every - 1})", fix)
    if s.fallback == "auto" and config.torch_deterministic:
        rule = "decides by the clock what is trained on, which torch_deterministic rules out"
        yield "torch_deterministic", Finding("schedule.fallback", "auto", rule, "Use schedule.fallback=warn")
    least = s.broadcast_every * config.ppo.horizon_length
    if s.name == "free" and 0 < s.max_lead_steps < least:
        reads = f"schedule.name schedule.broadcast_every {_PPO}.horizon_length"
        rule = f"must be 0 or at least broadcast_every * horizon_length = {least}, else the learner waits for ever"
        yield reads, Finding("schedule.max_lead_steps", s.max_lead_steps, rule, f"Use {least}")
    if isinstance(num_envs, int) and s.num_workers > num_envs >= 1:
        rule = f"is more than there are environments ({num_envs})"
        yield "num_envs task task.env", Finding("schedule.num_workers", s.num_workers, rule, f"Use {num_envs}")


def _simulation_rules(config: RunConfig) -> Iterator[Broken]:
    """What a simulator that a process can have only once leaves no room for, and what Isaac Gym's tensors need."""
    task, reads = config.task, "task sim.name eval"
    owner = task.package or ("Isaac Gym" if config.sim.name == "isaacgym" else "")
    rule = f"{owner} makes one simulation per process, and training has it"
    if owner and config.schedule.num_workers > 1:
        yield reads, Finding("schedule.num_workers", config.schedule.num_workers, f"must be 1: {rule}", "Use 1")
    if owner and config.eval.every:
        fix = "Use 0; it is evaluated at the end"
        yield reads, Finding("eval.every", config.eval.every, f"must be 0: {rule}", fix)
    if owner and config.capture_video:
        yield reads, Finding("capture_video", True, f"must be False: {rule}", "Use False")
    if task.package and config.sim.name != "auto":
        has = f"has no effect on a task of {owner}, which brings its own simulator"
        yield reads, Finding("sim", config.sim.name, has, "Leave it out")
    if task.task.get("randomize"):
        unsupported = "domain randomisation is not supported yet"
        yield "task task.task", Finding("task.task.randomize", True, unsupported, "Use False")
    if config.sim.name == "isaacgym":
        reads = "sim.name physics_engine task.physics_engine pipeline"
        for path in ("physics_engine", "task.physics_engine"):
            if _at(config, path) != "physx":
                rule = "Isaac Gym's tensors, which sim=isaacgym is made of, work with PhysX only"
                yield reads, Finding(path, _at(config, path), rule, "Use physx")
        if not task.sim.use_gpu_pipeline and config.pipeline == "gpu":
            yield reads, Finding("task.sim.use_gpu_pipeline", False, "contradicts pipeline = gpu", "Use pipeline=cpu")


def _learning_rules(config: RunConfig) -> Iterator[Broken]:
    ppo, caps, shaper = config.ppo, config.advantage, config.ppo.reward_shaper
    if caps.rho_bar < caps.c_bar:
        rule = f"must be at most advantage.rho_bar = {caps.rho_bar}"
        yield "advantage.rho_bar", Finding("advantage.c_bar", caps.c_bar, rule, f"Use {caps.rho_bar}")
    if ppo.min_lr > ppo.max_lr:
        rule = f"must be at most max_lr = {ppo.max_lr}"
        yield f"{_PPO}.max_lr", Finding(f"{_PPO}.min_lr", ppo.min_lr, rule, f"Use {ppo.max_lr}")
    if shaper.min_val >= shaper.max_val:
        path, rule = f"{_PPO}.reward_shaper", f"must be below max_val = {shaper.max_val}"
        yield f"{path}.max_val", Finding(f"{path}.min_val", shaper.min_val, rule, "Leave both out")
    if config.checkpoint and config.resume not in ("auto", "never"):
        rule = "names a second start beside checkpoint (a run continues, or starts from weights)"
        yield "checkpoint", Finding("resume", config.resume, rule, "Leave one of them out")
    critic, network = ppo.central_value_config, "train.params.network"
    yield from ((network, finding) for finding in check_network(config.train.params.network, network))
    if critic is not None and critic.network:
        found = check_network(critic.network, f"{_PPO}.central_value_config.network", critic=True)
        yield from (("", finding) for finding in found)


_RULES = (_size_rules, _schedule_rules, _simulation_rules, _learning_rules)


def _other_engines(config: RunConfig) -> Iterator[str]:
    for section, prefix in ((config, ""), (config.task, "task."), (config.task.sim, "task.sim.")):
        for item in fields(section):
            rules, value, default = rules_of(item), getattr(section, item.name), default_of(item)
            if rules.get("engine", config.sim.name) == config.sim.name or value == default:
                continue
            if is_dataclass(value):
                value = {k: v for k, v in vars(value).items() if v != getattr(default, k)}
            yield f"{prefix}{item.name} = {show(value)}: no effect, {rules['inert']}."


def _minibatch_fit(config: RunConfig) -> Iterator[str]:
    ppo, num_envs = config.ppo, int(config.task.env["numEnvs"])
    batch = num_envs * ppo.horizon_length
    asked = ppo.minibatch_size or ppo.minibatch_size_per_env * num_envs
    size, count, padded = fit_minibatch(batch, asked)
    if size != asked:
        tail = f", {padded} of them padding" if padded else ""
        sgd = "1 minibatch" if count == 1 else f"{count} minibatches"
        yield f"{_PPO}.minibatch_size = {asked}: {batch} rows per update make {sgd} of {size} rows{tail}."


def _critic(config: RunConfig) -> Iterator[str]:
    for name in ("minibatch_size", "mini_epochs"):
        own, used = getattr(config.ppo.central_value_config, name, 0), getattr(config.ppo, name)
        if own not in (0, used):
            yield f"{_PPO}.central_value_config.{name} = {own}: no effect, the policy's are used: {used}."


def _on_policy(config: RunConfig) -> Iterator[str]:
    on_policy = config.schedule.lag == 0 and config.schedule.name != "free"
    if on_policy and config.loss.w_max != 2.0:
        yield f"loss.w_max = {config.loss.w_max}: no effect at lag 0, where every weight is 1."


def _devices(config: RunConfig) -> Iterator[str]:
    for name in ("device", "device_name"):
        value = getattr(config.ppo, name)
        if value not in ("", config.rl_device):
            yield f"{_PPO}.{name} = {value}: no effect, the device is rl_device = {config.rl_device}."


_TRAINING_ENVS = "Isaac Gym makes one simulation per process, so the training environments are evaluated"
_FREE = ("max_policy_lag", "max_lead_steps", "broadcast_every", "on_excess")
# Not its group: a sweep gives its runs one, whether they log to W&B or not.
_WANDB = tuple(f"wandb_{name}" for name in ("name", "entity", "project", "tags", "logcode_dir", "artifacts"))


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
        (config.wandb == "disabled" and not config.wandb_activate, "", _WANDB, "wandb is disabled"),
        (config.sim.name == "mujoco", "sim", ("nconmax", "njmax"), "the model's <size memory> is the limit"),
        (config.sim.name == "mujoco_warp", "sim", ("threads",), "sim=mujoco_warp has none"),
        (config.sim.name == "isaacgym", "sim", ("threads",), "PhysX has num_threads"),
        (config.sim.name == "isaacgym" and not config.test, "eval", ("num_envs", "seed"), _TRAINING_ENVS),
        (bool(config.task.package), "eval", ("num_envs", "seed"), "the training environments are played in"),
        (not config.task.package, "env", ("autoreset",), "our own tasks are next_step"),
        (bool(config.task.package), "env", ("stagger_resets",), "the package's task starts its episodes itself"),
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


_WARNINGS = (_other_engines, _minibatch_fit, _critic, _on_policy, _devices, _combinations)


def _at(config: Any, path: str) -> Any:
    for name in path.split("."):
        config = getattr(config, name)
    return config
