"""`task=isaacgymenvs:NAME`: what composes, what is refused and when, and a run with its resume."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
import torch
from omegaconf import OmegaConf

from isaac_appo.commands.compose import compose
from isaac_appo.config import ConfigError
from isaac_appo.config.packages import package_devices

ROOT = Path(__file__).parents[2]
DOUBLES = ROOT / "tests" / "doubles"
CV = "train.params.config.central_value_config"

RUN = """
import sys
from isaac_appo.commands.main import main
words = ["train", "task=isaacgymenvs:Ant", "num_envs=8", "report.console=plain", "run_root=" + sys.argv[1]]
words += ["report.plot=False", "report.tensorboard=False"]
print("first:", main([*words, "max_iterations=2"]))
print("second:", main([*words, "max_iterations=3"]))
import isaacgymenvs
print("double:", isaacgymenvs.__is_double__)
"""


@pytest.fixture()
def double(monkeypatch: pytest.MonkeyPatch) -> None:
    """The double can be found; composing does not import it."""
    monkeypatch.syspath_prepend(str(DOUBLES))


def errors(*argv: str, command: str = "train") -> List[str]:
    with pytest.raises(ConfigError) as caught:
        compose(argv, command)
    return [str(error) for error in caught.value.errors]


def test_the_packages_own_yaml_is_composed(double: None) -> None:
    composed = compose(["task=isaacgymenvs:Ant", "num_envs=24", "task.env.fallAt=7", "sim_device=cpu", "schedule=sync"])
    task, ppo = composed.config.task, composed.config.ppo
    assert (task.name, task.package, task.label) == ("Ant", "isaacgymenvs", "isaacgymenvs_Ant")
    env = task.tree["env"]
    assert (env["numEnvs"], env["episodeLength"], env["fallAt"], env["asymmetric"]) == (24, 5, 7, True)
    assert task.tree["sim"]["use_gpu_pipeline"] is False and task.tree["sim"]["gravity"] == [0.0, 0.0, -9.81]
    assert task.tree["task"]["randomize"] is True and "package" not in task.tree
    assert (ppo.horizon_length, composed.config.num_envs, composed.config.schedule.name) == (8, 24, "sync")
    assert (ppo.central_value_config.learning_rate, ppo.central_value_config.lr_schedule) == (5e-4, "constant")
    assert "isaacgymenvs" not in sys.modules
    assert compose(["task=Ant"]).config.task.env["episodeLength"] == 1000  # and ours is ours again


def test_what_is_passed_on_is_not_called_without_effect(double: None) -> None:
    words = ["num_threads=8", "solver_type=0", "num_subscenes=2", "graphics_device_id=1", "force_render=False"]
    composed = compose(["task=isaacgymenvs:ShadowHand", *words])
    assert [text.partition(" ")[0] for text in composed.warnings] == ["train.params.config.player"]
    assert composed.config.task.tree["sim"]["physx"]["num_threads"] == 8
    [text] = [w for w in compose(["task=isaacgymenvs:Ant", "env.stagger_resets=False"]).warnings if "stagger" in w]
    assert text.endswith("no effect, the package's task starts its episodes itself.")
    assert len(compose(["task=Ant", *words]).warnings) == 5


def test_a_critic_with_other_minibatches_is_told_that_it_gets_the_policys(double: None) -> None:
    own = [f"{CV}.mini_epochs=4", f"{CV}.minibatch_size=1"]
    [text] = [
        w for w in compose(["task=isaacgymenvs:Ant", "train.params.config.mini_epochs=4", *own]).warnings if CV in w
    ]
    assert text.startswith(f"{CV}.minibatch_size = 1: no effect, the policy's are used: ")


def test_a_users_folder_is_found_beside_the_package(double: None, tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    (tmp_path / "train" / "Mine.yaml").write_text("defaults: [ShadowHandPPO]\nparams:\n  config:\n    gamma: 0.5\n")
    composed = compose(["task=isaacgymenvs:ShadowHand", "train=Mine", "--config-dir", str(tmp_path)])
    assert composed.config.ppo.gamma == 0.5


def test_auto_devices_are_words_before_torch_is_asked() -> None:
    assert package_devices("auto", "auto", gpu=True) == {"sim_device": "cuda:0", "rl_device": "cuda:0"}
    assert package_devices("auto", "auto", gpu=False) == {"sim_device": "cpu", "rl_device": "cpu", "pipeline": "cpu"}
    assert package_devices("cpu", "cuda:1", gpu=True) == {"sim_device": "cpu", "rl_device": "cuda:1", "pipeline": "cpu"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["task=isaacgymenvs:Cartpole"], "isaacgymenvs has no such task, it is ours. Use task=Cartpole"),
        (["task=isaacgymenvs:ShadowHnd"], "Did you mean task=ShadowHand?"),
        (["task=newton:Ant"], "tasks come from here or from isaacgymenvs. Use isaacgymenvs:Ant"),
        (["task=legged_gym:a1"], "give it to Trainer(..., envs=[LeggedGymEnv(env)])"),
        (["task=isaacgymenvs:ShadowHand", "schedule.num_workers=2"], "isaacgymenvs makes one simulation per process"),
        (["task=isaacgymenvs:ShadowHand", "sim=mujoco"], "which brings its own simulator"),
        (["task=isaacgymenvs:Ant", f"{CV}.network.rnn={{name: lstm}}"], "recurrent networks are not supported"),
        (
            ["task=isaacgymenvs:Ant", f"{CV}.learning_rate=-1"],
            "central_value_config.learning_rate = -1: must be above 0",
        ),
    ],
)
def test_refusals(double: None, words: List[str], expected: str) -> None:
    assert any(expected in error for error in errors(*words))


def test_only_train_takes_it(double: None) -> None:
    assert "isaac-appo bench takes our own tasks only" in errors("task=isaacgymenvs:Ant", command="bench")[0]


def test_a_missing_package_is_told_before_torch_is_imported() -> None:
    code = (
        "import sys; from isaac_appo.commands.main import main\n"
        "assert main(['train', 'task=isaacgymenvs:ShadowHand']) == 2 and 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "package isaacgymenvs is not installed" in done.stderr and "isaac-appo doctor" in done.stderr


def test_states_are_needed_for_an_asymmetric_critic(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from isaac_appo.build import model_maker

    config = compose(
        ["task=Cartpole", f"+{CV}={{network: {{name: actor_critic, mlp: {{units: [8], activation: elu}}}}}}"]
    )
    with pytest.raises(ConfigError, match="needs states, and task Cartpole gives none"):
        model_maker(config.config, 4, 1)


def test_a_run_and_its_resume(tmp_path: Path) -> None:
    path = os.pathsep.join([str(ROOT), str(DOUBLES)])
    variables = {**os.environ, "PYTHONPATH": path, "ISAACGYMENVS_DOUBLE_STRICT": "1"}
    command = [sys.executable, "-c", RUN, str(tmp_path)]
    done = subprocess.run(command, env=variables, cwd=tmp_path, capture_output=True, text=True, check=False)
    out = done.stdout + done.stderr
    assert "first: 0" in out and "second: 0" in out and "double: True" in out, out
    assert "Ant: autoreset next_step (what class Ant does)" in out
    assert "Ant cannot save its physics" in out and "8 episodes" in out
    run = tmp_path / "isaacgymenvs_Ant" / "default" / "s42"
    state = torch.load(run / "checkpoints" / "ckpt_000000003.pth", weights_only=True)
    assert state["env_state"] == {"curriculum": 3}  # told of 3 x 64 env steps
    assert "model.a2c_network.value.weight" in state["assymetric_vf_nets"]
    assert not any(key.startswith("central_value") for key in state["model"])
    assert state["isaac_appo"]["pipeline"]["ledger"]["masked"]["dead"] > 0
    assert OmegaConf.load(run / "config.yaml").task.package == "isaacgymenvs"
