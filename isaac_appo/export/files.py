"""Writes ONNX, TorchScript and contract, and compares both with the policy that was trained."""

from __future__ import annotations

import inspect
import json
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isaac_appo.config import RunConfig
from isaac_appo.env.task_env import TaskEnv
from isaac_appo.errors import UserError
from isaac_appo.evaluation import mean_action
from isaac_appo.export.contract import contract_of, sha256
from isaac_appo.export.policy import ExportedPolicy
from isaac_appo.play.agent import load_model
from isaac_appo.play.session import Policy, build_play_env
from isaac_appo.report.atomic_file import write_json

TOLERANCE = 1e-5
OPSET = 17
ROWS = 128


class ExportError(UserError):
    """A policy cannot be exported, or what was exported does not do the same."""

    exit_code = 1


class Exported(NamedTuple):
    """The files of one export, and the largest difference of an action from the trained policy's."""

    onnx: Path
    torchscript: Path
    contract: Path
    differences: Dict[str, float]


def export(config: RunConfig, policy: Policy, folder: Path) -> Exported:
    """Write `TASK.onnx`, `TASK.pt` and `TASK.json` into `folder`, and compare them with the policy as trained.

    Errors: ExportError (a missing package, a recurrent network, a difference above TOLERANCE), CheckpointError.
    """
    onnx, runtime = _packages()
    if any(".rnn." in name for name in policy.state.get("model", {})):
        raise ExportError(f"{policy.path}: the network is recurrent, and its state cannot be exported yet")
    env = build_play_env(config, ROWS)
    try:
        model = load_model(config, policy.state, env.num_obs, env.num_actions).cpu().eval()
        cfg = env.task.cfg
        exported = ExportedPolicy(model, cfg["clipObservations"], config.ppo.clip_actions, cfg["clipActions"])
        obs, actions = _samples(env, model, config.ppo.clip_actions)
        folder.mkdir(parents=True, exist_ok=True)
        paths = [folder / f"{config.task.name}{ending}" for ending in (".onnx", ".pt", ".json")]
        contract = contract_of(config, policy, env)
        script = _write(exported.eval(), obs[:2], contract, paths, onnx)
        session = runtime.InferenceSession(str(paths[0]), providers=["CPUExecutionProvider"])
        differences = {
            "onnx": _difference(lambda x: torch.as_tensor(session.run(None, {"obs": x.numpy()})[0]), obs, actions),
            "torchscript": _difference(script, obs, actions),
        }
        files = {path.name: sha256(path) for path in paths[:2]}
        write_json(paths[2], {**contract, "files_sha256": files, "largest_difference": differences})
        return Exported(paths[0], paths[1], paths[2], differences)
    finally:
        env.close()


def _packages() -> Any:
    try:
        import onnx
        import onnxruntime
    except ImportError as error:
        raise ExportError(
            f"export needs onnx and onnxruntime ({error}). Install: pip install onnx onnxruntime"
        ) from error
    return onnx, onnxruntime


@torch.no_grad()
def _samples(env: TaskEnv, model: Any, clip_actions: bool) -> Any:
    """Observations [3 * ROWS, O] as they come and far beyond, and the actions of the trained policy in the env."""
    generator = torch.Generator().manual_seed(0)
    act, seen = mean_action(model, env, clip_actions), [env.reset().cpu().clone()]
    for _ in range(20):
        obs = env.step(act(env.obs))[0]
    seen.append(obs.cpu().clone())
    clip = min(env.task.cfg["clipObservations"], 1e6)
    wild = 20.0 * torch.randn(seen[0].shape, generator=generator)
    seen.append(wild)
    bound = env.task.cfg["clipActions"]
    actions = [act(rows.to(env.device).clamp(-clip, clip)).cpu().clamp(-bound, bound) for rows in seen]
    return torch.cat(seen), torch.cat(actions)


def _write(policy: ExportedPolicy, example: Tensor, contract: Dict[str, Any], paths: Any, onnx: Any) -> Any:
    """Write both files; returns the TorchScript module as read back."""
    legacy: Dict[str, Any] = {"dynamo": False} if "dynamo" in inspect.signature(torch.onnx.export).parameters else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # both exporters are deprecated in favour of one that Python 3.8 lacks
        torch.jit.trace(policy, example).save(str(paths[1]))
        script = torch.jit.load(str(paths[1]))
        torch.onnx.export(
            policy,
            (example,),
            str(paths[0]),
            input_names=["obs"],
            output_names=["actions"],
            dynamic_axes={"obs": {0: "batch"}, "actions": {0: "batch"}},
            opset_version=OPSET,
            **legacy,
        )
    graph = onnx.load(str(paths[0]))
    onnx.helper.set_model_props(graph, {"contract": json.dumps(contract)})
    onnx.checker.check_model(graph)
    onnx.save(graph, str(paths[0]))
    return script


def _difference(function: Callable[[Tensor], Tensor], obs: Tensor, actions: Tensor) -> float:
    """The largest absolute difference over all rows, asked for one row and for all of them."""
    with torch.no_grad():
        together, alone = function(obs), function(obs[:1])
    largest = float(np.max(np.abs(torch.cat([alone, together]).numpy() - torch.cat([actions[:1], actions]).numpy())))
    if not largest <= TOLERANCE:
        raise ExportError(f"an exported action differs from the policy's by {largest:.1e}, more than {TOLERANCE:.0e}")
    return largest
