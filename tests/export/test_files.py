"""What is exported does what was trained, through onnxruntime and TorchScript, and says what it is."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, Dict

import numpy as np
import pytest
import torch
from torch import Tensor

from isaac_appo.commands.compose import compose
from isaac_appo.commands.main import main
from isaac_appo.config import RunConfig
from isaac_appo.export import files
from isaac_appo.export.contract import sha256
from isaac_appo.export.files import ExportError, export
from isaac_appo.export.policy import ExportedPolicy
from isaac_appo.play.session import Policy
from isaac_appo.policy.actor_critic import ActorCritic
from tests.helpers import make_model

onnxruntime = pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")


def trained_like(task: str, folder: Path) -> Any:
    """A policy with statistics and weights as training makes them, in a checkpoint file."""
    from isaac_appo.build import model_maker
    from isaac_appo.tasks.registry import task_class

    config = compose([f"task={task}"]).config
    cls = task_class(task)
    model = model_maker(config, cls.num_obs, cls.num_actions)()
    generator = torch.Generator().manual_seed(1)
    rows = 3.0 * torch.randn(500, cls.num_obs, generator=generator) + 1.0
    model.running_mean_std.update(rows, torch.ones(500))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
        model.a2c_network.mu.weight.mul_(10.0 if task == "Cartpole" else 1.0)
    state = {"model": dict(model.state_dict()), "epoch": 12, "frame": 3456}
    path = folder / "policy.pth"
    torch.save(state, path)
    model.publish_statistics()
    return config, Policy(path, state), model


def by_hand(config: RunConfig, model: ActorCritic, obs: Tensor, clip_obs: float) -> Tensor:
    """The policy written out: float64, from the state dict alone."""
    state = {name: tensor.double() for name, tensor in model.state_dict().items()}
    x = obs.double().clamp(-clip_obs, clip_obs) if math.isfinite(clip_obs) else obs.double()
    x = (x - state["running_mean_std.running_mean"]) / (state["running_mean_std.running_var"] + 1e-5).sqrt()
    x = x.clamp(-5.0, 5.0)
    for layer in (0, 2, 4):
        name = f"a2c_network.actor_mlp.{layer}"
        if f"{name}.weight" in state:
            x = torch.nn.functional.elu(x @ state[f"{name}.weight"].T + state[f"{name}.bias"])
    mu: Tensor = x @ state["a2c_network.mu.weight"].T + state["a2c_network.mu.bias"]
    return mu.clamp(-1.0, 1.0)


@pytest.mark.parametrize(("task", "clip"), [("Ant", math.inf), ("Cartpole", 5.0)])
def test_onnx_and_torchscript_are_the_policy(task: str, clip: float, tmp_path: Path) -> None:
    config, policy, model = trained_like(task, tmp_path)
    done = export(config, policy, tmp_path / "out")
    assert max(done.differences.values()) <= 1e-5
    session = onnxruntime.InferenceSession(str(done.onnx), providers=["CPUExecutionProvider"])
    script = torch.jit.load(str(done.torchscript))
    obs = 10.0 * torch.randn(77, model.num_obs, generator=torch.Generator().manual_seed(5))
    expected = by_hand(config, model, obs, clip)
    assert 0.05 < (expected.abs() == 1.0).double().mean() < 0.95  # the clamp matters and does not hide the rest
    for actions in (session.run(None, {"obs": obs.numpy()})[0], script(obs).detach().numpy()):
        np.testing.assert_allclose(actions, expected.numpy(), atol=1e-5)


def test_the_contract_says_what_goes_in_and_comes_out(tmp_path: Path) -> None:
    config, policy, _ = trained_like("Cartpole", tmp_path)
    done = export(config, policy, tmp_path / "out")
    contract: Dict[str, Any] = json.loads(done.contract.read_text())
    assert contract["observation"]["names"] == ["cart_pos", "cart_vel", "pole_angle", "pole_vel"]
    assert contract["observation"]["clip"] == 5.0 and contract["action"]["names"] == ["push"]
    assert contract["action"]["bound"] == 1.0
    assert contract["action"]["effort_at_one"] == {"slider_to_cart": 400.0, "cart_to_pole": 0.0}
    assert contract["control"] == {"dt_s": 0.0166, "substeps": 2, "physics_dt_s": 0.0083, "steps_per_action": 1}
    assert contract["joints"]["names"] == ["slider_to_cart", "cart_to_pole"]
    assert contract["joints"]["lower"] == [-4.0, None] and contract["joints"]["upper"] == [4.0, None]
    assert contract["checkpoint"] == {
        "file": "policy.pth", "sha256": sha256(policy.path), "policy_version": 12, "env_steps": 3456,
    }  # fmt: skip
    assert contract["files_sha256"] == {path.name: sha256(path) for path in (done.onnx, done.torchscript)}
    properties = {item.key: item.value for item in onnx.load(str(done.onnx)).metadata_props}
    assert json.loads(properties["contract"])["task"] == "Cartpole"


@pytest.mark.parametrize(("task", "num_obs", "num_actions"), [("Ant", 60, 8), ("Cartpole", 4, 1)])
def test_every_observation_and_action_has_its_own_name(task: str, num_obs: int, num_actions: int) -> None:
    from isaac_appo.tasks.registry import task_class

    cls = task_class(task)
    assert len(set(cls.obs_names)) == len(cls.obs_names) == num_obs
    assert len(set(cls.action_names)) == len(cls.action_names) == num_actions


def test_names_of_the_ant_stand_where_the_observation_puts_them() -> None:
    from isaac_appo.tasks.ant import Ant

    at = {name: index for index, name in enumerate(Ant.obs_names)}
    expected = {"height": 0, "ang_vel_x": 4, "heading": 11, "pos_hip_1": 12, "vel_ankle_4": 27}
    expected.update({"force_x_foot_1": 28, "torque_z_foot_4": 51, "action_hip_1": 52})
    assert {name: at[name] for name in expected} == expected


def test_a_copy_that_differs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config, policy, _ = trained_like("Cartpole", tmp_path)

    class Off(ExportedPolicy):
        def forward(self, obs: Tensor) -> Tensor:
            return super().forward(obs) + 1e-4

    monkeypatch.setattr(files, "ExportedPolicy", Off)
    with pytest.raises(ExportError, match=r"differs from the policy's by 1\.\de-04, more than 1e-05"):
        export(config, policy, tmp_path / "out")


def test_a_recurrent_network_is_refused(tmp_path: Path) -> None:
    config, policy, _ = trained_like("Cartpole", tmp_path)
    policy.state["model"]["a2c_network.rnn.rnn.weight_ih_l0"] = torch.zeros(1)
    with pytest.raises(ExportError, match="recurrent"):
        export(config, policy, tmp_path / "out")


def test_without_normaliser_and_clipping_the_mean_goes_out() -> None:
    model = make_model(4, 2)
    model.running_mean_std = type(model.running_mean_std)(4)
    exported = ExportedPolicy(model, math.inf, False, math.inf)
    with torch.no_grad():
        model.a2c_network.mu.bias.copy_(torch.tensor([7.0, -9.0]))
        out = exported(torch.zeros(3, 4))
    assert (out[:, 0] > 6.0).all() and (out[:, 1] < -8.0).all()


def test_the_command_reads_the_run_and_writes_into_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small = ["task=Cartpole", "num_envs=16", "train.params.config.horizon_length=4", "max_iterations=1"]
    quiet = ["report.console=off", "report.plot=False", "report.tensorboard=False", "eval.enabled=False"]
    assert main(["train", *small, *quiet, "train.params.config.minibatch_size=32", f"run_root={tmp_path}"]) == 0
    assert main(["export", f"run_root={tmp_path}"]) == 0
    folder = tmp_path / "Cartpole" / "default" / "s42" / "export"
    assert sorted(path.name for path in folder.iterdir()) == ["Cartpole.json", "Cartpole.onnx", "Cartpole.pt"]
    assert "largest difference from the trained policy" in capsys.readouterr().out
