from __future__ import annotations

from pathlib import Path
from typing import List

import pytest
from hydra import initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from isaac_appo.commands.compose import compose
from isaac_appo.config import ConfigError, RunConfig

PPO = "train.params.config"


def errors(*argv: str) -> List[str]:
    with pytest.raises(ConfigError) as caught:
        compose(argv)
    return caught.value.errors


def config(*argv: str) -> RunConfig:
    return compose(argv).config


@pytest.mark.parametrize(
    "line",
    [
        "task=Ant num_envs=64 headless=True max_iterations=10 seed=1 experiment=first",
        "task=Cartpole sim_device=cpu rl_device=cpu pipeline=cpu graphics_device_id=0 force_render=False",
        "task=Ant train=AntPPO checkpoint=runs/Ant/nn/Ant.pth test=True num_envs=64",
        f"task=Ant {PPO}.learning_rate=1e-3 {PPO}.gamma=0.999 task.env.powerScale=0.5 task.sim.substeps=4",
        f"task=Ant {PPO}.torch_compile=False +{PPO}.use_diagnostics=True ++{PPO}.weight_decay=0.1",
        "task=Ant wandb_activate=False wandb_entity=me wandb_group=g wandb_tags=[a,b] capture_video_freq=1 sigma=0.1",
        "task=Ant physics_engine=physx solver_type=1 num_subscenes=4 num_threads=4 torch_deterministic=True",
        "task=Ant task.sim.physx.num_threads=8 task.sim.use_gpu_pipeline=False task.task.randomize=False",
    ],
)
def test_command_lines_of_isaacgymenvs_compose(line: str) -> None:
    composed = compose(line.split())
    assert composed.config.task.name == composed.config.task_name
    assert composed.overrides == line.split()


def test_values_arrive_where_they_belong() -> None:
    ours = config(
        *f"task=Cartpole {PPO}.learning_rate=1e-3 task.env.maxEffort=9 schedule.lag=3 +task.env.mine=1".split()
    )
    assert (ours.ppo.learning_rate, ours.task.env["maxEffort"], ours.schedule.lag) == (1e-3, 9, 3)
    assert ours.task.env["mine"] == 1
    assert config("task=Cartpole").ppo.learning_rate == 3e-4


def test_every_composition_starts_afresh() -> None:
    assert config("task=Cartpole", "seed=7").seed == 7
    assert (config().seed, config().task.name) == (42, "Ant")


def test_a_program_with_its_own_hydra_keeps_it() -> None:
    with initialize_config_module("isaac_appo.cfg", version_base="1.3"):
        outer = GlobalHydra.instance().hydra
        compose([])
        assert outer is not None and GlobalHydra.instance().hydra is outer


@pytest.mark.parametrize(
    "path",
    [
        "/path/ep=501rew[5981.31].pth",
        "runs/my run, (old)/a{1}.pth",
        "back\\slash\\",
        'a"quote.pth',
        "comma,colon:.pth",
    ],
)
def test_raw_paths_need_no_quoting(path: str) -> None:
    assert config(f"checkpoint={path}").checkpoint == path
    assert config(f"+resume={path}").resume == path


def test_quoted_paths_still_work() -> None:
    assert config('checkpoint="/a=b[1].pth"').checkpoint == "/a=b[1].pth"
    assert config("checkpoint='/a=b[1].pth'").checkpoint == "/a=b[1].pth"
    assert config("checkpoint=").checkpoint == ""
    assert config("experiment=007").experiment == "007"


@pytest.mark.parametrize("word", ["full_experiment_name=mine", "+full_experiment_name=mine", "experiment=mine"])
def test_the_run_has_one_name_however_it_is_given(word: str) -> None:
    named = config(word)
    assert (named.experiment, named.ppo.name, named.ppo.full_experiment_name) == ("mine", "mine", "mine")
    assert config(f"{PPO}.full_experiment_name=mine").experiment == "mine"
    assert config().experiment == ""


@pytest.mark.parametrize(
    ("word", "line"),
    [
        ("task=ant", "task = ant: must be one of Ant, Cartpole. Did you mean task=Ant?"),
        ("task=cart-pole", "task = cart-pole: must be one of Ant, Cartpole. Did you mean task=Cartpole?"),
        ("task=Humanoid", "task = Humanoid: must be one of Ant, Cartpole. Use task=Ant"),
        ("train=AntPP", "train = AntPP: must be one of AntPPO, CartpolePPO. Did you mean train=AntPPO?"),
        ("sim=mujco", "sim = mujco: must be one of auto, isaacgym, mujoco, mujoco_warp. Did you mean sim=mujoco?"),
        (
            "schedule=locstep",
            "schedule = locstep: must be one of free, lockstep, sync. Did you mean schedule=lockstep?",
        ),
        ("advantage=v-trace", "advantage = v-trace: must be one of gae, vtrace. Did you mean advantage=vtrace?"),
        ("loss=behavior", "loss = behavior: must be one of behaviour, decoupled. Did you mean loss=behaviour?"),
        ("headless", "headless: needs a value. Write headless=True"),
        (
            "--headless",
            "--headless: no such option. "
            "Options are --help, --cfg job, --resolve, --origin, --config-dir DIR and -m; keys are KEY=VALUE",
        ),
        ("-m", "-m: only isaac-appo train sweeps. Leave it out and give one value for each key"),
        ("--multirun", "--multirun: only isaac-appo train sweeps. Leave it out and give one value for each key"),
        ("seed=1,2", "seed=1,2: several values make a sweep. Write isaac-appo train -m ..., or give one value"),
        ("seed=[1", "seed=[1: Hydra cannot read it. Quote the value: 'seed=\"VALUE\"'"),
        ("--cfg=hydra", "--cfg hydra: only the job's configuration can be shown. Write --cfg job"),
        ("--config-dir=/no/such", "--config-dir /no/such: no such folder. Give the folder that holds task/ and train/"),
        ("=3", "=3: no key. Write KEY=VALUE"),
        ("task.env.zzzzzz=1", "task.env.zzzzzz = 1: unknown key. Add it with +task.env.zzzzzz=1"),
    ],
)
def test_a_wrong_word_says_what_to_write(word: str, line: str) -> None:
    assert errors(word) == [line]


def test_every_wrong_word_is_told_at_once() -> None:
    assert len(errors("task=ant", "headless", "--seed", "sim=x", "task.env.powrScale=1", "task.env.upWeigt=1")) == 6


def test_dashes_before_a_key_are_dropped() -> None:
    assert config("--task=Cartpole", "--seed=3", f"--{PPO}.gamma=0.5").task.name == "Cartpole"
    assert config("--seed=3").seed == 3
    assert errors("--task=ant")[0].startswith("task = ant: must be one of")


def test_a_drawn_seed_is_stored_and_typed() -> None:
    first, second = compose(["task=Ant", "seed=-1"]), compose(["seed=-1"])
    assert 0 <= first.config.seed < 2**31
    assert first.config.seed != second.config.seed
    assert first.config.train.params.seed == first.config.seed == first.cfg.seed
    assert first.overrides == ["task=Ant", f"seed={first.config.seed}"]
    assert first.warnings == [f"seed = -1: drew {first.config.seed}; seed={first.config.seed} repeats this run."]


def test_show_config_prints_and_runs_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for argv in (["--cfg", "job"], ["--cfg=job"], ["-c", "job"]):
        with pytest.raises(SystemExit) as stop:
            compose([*argv, "num_envs=64"])
        assert stop.value.code == 0
        shown = OmegaConf.create(capsys.readouterr().out)
        assert OmegaConf.is_interpolation(shown.task.env, "numEnvs")
    with pytest.raises(SystemExit):
        compose(["--cfg", "job", "--resolve", "num_envs=64"])
    out = capsys.readouterr().out
    assert "${" not in out and OmegaConf.create(out).task.env.numEnvs == 64


def test_show_config_prints_an_invalid_one_and_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert errors("--cfg", "job", "schedule.lag=9") == ["schedule.lag = 9: must be at least 0 and at most 8. Use 8"]
    assert "lag: 9" in capsys.readouterr().out
    assert errors("--cfg", "job", "--resolve", "run_root=${nope}")[0].startswith("run_root = (unresolved)")


def test_help_lists_choices_and_keys(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        compose(["--help"])
    out = capsys.readouterr().out
    assert stop.value.code == 0
    assert "task=                 Ant | Cartpole" in out
    assert "schedule=             free | lockstep | sync" in out
    assert "keep_checkpoints=3" in out and "eval.num_envs=128" in out
    assert "pipeline=gpu" in out and "force_render" not in out
    assert max(map(len, out.splitlines())) <= 120


@pytest.fixture()
def user_folder(tmp_path: Path) -> Path:
    for group in ("task", "train"):
        (tmp_path / group).mkdir()
    (tmp_path / "task" / "Mine.yaml").write_text(
        "name: Mine\n"
        "physics_engine: ${..physics_engine}\n"
        "env:\n  numEnvs: ${resolve_default:32,${...num_envs}}\n"
        "sim:\n"
        "  dt: 0.0166\n  substeps: 2\n  up_axis: z\n  gravity: [0.0, 0.0, -9.81]\n"
        '  use_gpu_pipeline: ${eq:${...pipeline},"gpu"}\n'
        "  physx:\n    num_threads: ${....num_threads}\n    solver_type: ${....solver_type}\n"
        '    use_gpu: ${contains:"cuda",${....sim_device}}\n    num_subscenes: ${....num_subscenes}\n'
        "task:\n  randomize: False\n"
    )
    return tmp_path


def test_a_users_own_task_in_isaacgymenvs_schema_drops_in(user_folder: Path) -> None:
    words = ["task=Mine", "train=AntPPO", "num_envs=16"]
    for search in (["--config-dir", str(user_folder)], [f"hydra.searchpath=[file://{user_folder}]"]):
        composed = compose([*words, *search])
        assert (composed.config.task.name, composed.config.num_envs) == ("Mine", 16)
        assert composed.config.task.sim.physx.num_threads == 4
        assert [text.split(":")[0][:14] for text in composed.warnings] == ["task.sim.physx", "train.params.c"]


@pytest.mark.parametrize("content", [b"name: [1\n a: b", b"\xff\xfe"])
def test_a_yaml_file_that_cannot_be_read_is_an_error(user_folder: Path, content: bytes) -> None:
    (user_folder / "task" / "Bad.yaml").write_bytes(content)
    (line,) = errors("task=Bad", "train=AntPPO", "--config-dir", str(user_folder))
    assert line.startswith("A YAML file cannot be read: ")


def test_a_users_own_folder_is_listed(user_folder: Path) -> None:
    folder = ["--config-dir", str(user_folder)]
    assert errors("task=Min", *folder) == ["task = Min: must be one of Ant, Cartpole, Mine. Did you mean task=Mine?"]
    assert errors("task=Mine", *folder) == [
        "train = MinePPO: task Mine has no train/MinePPO.yaml. Write one or choose train=NAME"
    ]
