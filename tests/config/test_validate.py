from __future__ import annotations

import math
from typing import List

import pytest
from omegaconf import DictConfig, OmegaConf

from isaac_appo.commands.compose import compose
from isaac_appo.config import ConfigError, RunConfig, validate

PPO = "train.params.config"
PARAMS = "train.params"
UNITS = "must be a list of layer sizes of at least 1. Use [256, 128, 64]"
SECOND = "names a second start beside checkpoint (a run continues, or starts from weights). Leave one of them out"
DEAD = "Interpolation key 'nope' not found. Give it a value or correct the reference"


@pytest.fixture(scope="module")
def ant() -> DictConfig:
    return compose(["task=Ant"]).cfg


def changed(base: DictConfig, **changes: object) -> DictConfig:
    cfg = OmegaConf.create(OmegaConf.to_container(base))
    assert isinstance(cfg, DictConfig)
    for path, value in changes.items():
        OmegaConf.update(cfg, path.replace("__", "."), value, force_add=True)
    return cfg


def errors(*argv: str) -> List[str]:
    with pytest.raises(ConfigError) as caught:
        compose(argv)
    return caught.value.errors


def warnings(*argv: str) -> List[str]:
    return compose(argv).warnings


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("num_envs=abc", "num_envs = abc: must be a whole number. Use 1"),
        ("num_envs=0", "num_envs = 0: must be at least 1. Use 1"),
        ("num_envs=7.5", "num_envs = 7.5: must be a whole number. Use 7"),
        ("+task.sim.physx.num_threads=abc", "task.sim.physx.num_threads = abc: must be a whole number. Leave it out"),
        (f"{PPO}.pbt_idx=abc", f"{PPO}.pbt_idx = abc: must be a whole number. Leave it out"),
        ("num_envs=True", "num_envs = True: must be a whole number. Use 1"),
        ("seed=-2", "seed = -2: must be at least -1 and below 2147483648. Use -1"),
        ("max_iterations=0", "max_iterations = 0: must be at least 1. Use 1"),
        ("torch_deterministic=1", "torch_deterministic = 1: must be True or False. Use True"),
        ("torch_deterministic=maybe", "torch_deterministic = maybe: must be True or False. Use False"),
        ("sim_device=gpu", "sim_device = gpu: must be auto, cpu, cuda or cuda:N. Use auto"),
        ("experiment=a b/c", "experiment = a b/c: may hold letters, digits, '.', '_' and '-'. Use a_b_c"),
        ("keep_checkpoints=1", "keep_checkpoints = 1: must be at least 2. Use 2"),
        ("task.sim.dt=0", "task.sim.dt = 0: must be above 0 and at most 1. Use 0.0166"),
        ("wandb_tags=x", "wandb_tags = x: must be a list. Leave it out"),
        ("env=3", "env = 3: must be a section with keys. Use env.KEY=VALUE"),
        ("env.max_nan_fraction=nan", "env.max_nan_fraction = nan: must be finite. Use 0.01"),
        ("report.console=Rich", "report.console = Rich: must be one of auto, rich, plain, off. Use rich"),
        ("schedule.lag=9", "schedule.lag = 9: must be at least 0 and at most 8. Use 8"),
        ("loss.w_max=0.5", "loss.w_max = 0.5: must be at least 1. Use 1.0"),
        ("loss.w_max=inf", "loss.w_max = inf: must be finite. Use 2.0"),
        ("multi_gpu=True", "multi_gpu = True: not supported yet. Use False or leave it out"),
        ("capture_video_len=0", "capture_video_len = 0: must be at least 1. Use 1"),
        ("wandb=on", "wandb = on: must be one of online, offline, disabled. Use disabled"),
        (
            "task.task.randomize=True",
            "task.task.randomize = True: domain randomisation is not supported yet. Use False",
        ),
        ("task.env.numEnvs=0", "task.env.numEnvs = 0: must be a whole number of at least 1. Use num_envs=4096"),
        (f"{PPO}.gamma=1.5", f"{PPO}.gamma = 1.5: must be at least 0 and at most 1. Use 1.0"),
        (f"{PPO}.tau=-1", f"{PPO}.tau = -1: must be at least 0 and at most 1. Use 0.0"),
        (f"{PPO}.learning_rate=0", f"{PPO}.learning_rate = 0: must be above 0 and at most 1. Use 0.0003"),
        (f"{PPO}.learning_rate=x", f"{PPO}.learning_rate = x: must be a number. Use 0.0003"),
        (
            f"{PPO}.lr_schedule=adaptiv",
            f"{PPO}.lr_schedule = adaptiv: must be one of adaptive, linear, constant. Use adaptive",
        ),
        (f"{PPO}.horizon_length=0", f"{PPO}.horizon_length = 0: must be at least 1. Use 1"),
        (f"{PPO}.minibatch_size=0", f"{PPO}.minibatch_size = 0: is needed: rows per SGD step. Use 4096"),
        (f"{PPO}.max_epochs=-1", f"{PPO}.max_epochs = -1: nothing ends the run. Use max_iterations=500"),
        (f"{PPO}.num_actors=5", f"{PPO}.num_actors = 5: must equal task.env.numEnvs = 4096. Leave it out"),
        (f"{PPO}.min_lr=0.1", f"{PPO}.min_lr = 0.1: must be at most max_lr = 0.01. Use 0.01"),
        (f"{PPO}.ppo=False", f"{PPO}.ppo = False: this trainer is PPO. Use True or leave it out"),
        (f"{PPO}.use_action_masks=True", f"{PPO}.use_action_masks = True: not supported. Use False or leave it out"),
        (
            f"{PPO}.reward_shaper.min_val=2 {PPO}.reward_shaper.max_val=1",
            f"{PPO}.reward_shaper.min_val = 2.0: must be below max_val = 1.0. Leave both out",
        ),
        (
            f"{PPO}.self_play_config.update_score=1",
            f"{PPO}.self_play_config = {{'update_score': 1}}: not supported. Use None or leave it out",
        ),
        (
            f"{PARAMS}.algo.name=sac",
            f"{PARAMS}.algo.name = sac: must be one of a2c_continuous, appo_continuous. Use a2c_continuous",
        ),
        (f"{PARAMS}.network.name=resnet", f"{PARAMS}.network.name = resnet: must be actor_critic. Use actor_critic"),
        (
            "+train.params.network.rnn.units=8",
            "train.params.network.rnn = {'units': 8}: recurrent networks are not supported yet. Leave it out",
        ),
        (f"{PARAMS}.network.mlp.units=[64,0]", f"{PARAMS}.network.mlp.units = [64, 0]: {UNITS}"),
        ("~train.params.network", "train.params.network = (missing): is needed: rl_games' network block. Add it"),
        (
            "schedule=sync schedule.lag=2",
            "schedule.lag = 2: must be 0 with schedule=sync. Use schedule=lockstep schedule.lag=2, or schedule.lag=0",
        ),
        (
            "advantage=vtrace advantage.c_bar=4",
            "advantage.c_bar = 4.0: must be at most advantage.rho_bar = 3.0. Use 3.0",
        ),
        ("resume=runs/x checkpoint=a.pth", f"resume = runs/x: {SECOND}"),
        ("task.name=${nope}", f"task.name = (unresolved): {DEAD}"),
    ],
)
def test_each_error_says_value_rule_and_nearest_fix(argument: str, line: str) -> None:
    words = [argument] if argument.startswith("experiment") else argument.split(" ")
    assert errors(*words) == [line]


def test_all_errors_come_at_once_in_one_text() -> None:
    with pytest.raises(ConfigError) as caught:
        compose(["num_envs=abc", "schedule.lag=9", f"{PPO}.gama=1", f"{PPO}.gamma=2", "task=antt"])
    assert str(caught.value) == (
        "5 errors in the configuration:\n"
        "  task = antt: must be one of Ant, Cartpole. Did you mean task=Ant?\n"
        "  num_envs = abc: must be a whole number. Use 1\n"
        f"  {PPO}.gamma = 2: must be at least 0 and at most 1. Use 1.0\n"
        f"  {PPO}.gama = 1: unknown key. Did you mean {PPO}.gamma?\n"
        "  schedule.lag = 9: must be at least 0 and at most 8. Use 8"
    )


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        (f"{PPO}.learnin_rate", f"{PPO}.learning_rate"),
        ("learning_rate", f"{PPO}.learning_rate"),
        ("horizon_lenght", f"{PPO}.horizon_length"),
        ("num_env", "num_envs"),
        ("Seed", "seed"),
        ("schedule.lags", "schedule.lag"),
        ("sim.thread", "sim.threads"),
        ("task.sim.substep", "task.sim.substeps"),
        ("task.env.powrScale", "task.env.powerScale"),
        ("train.params.network.mlp.unit", "train.params.network.mlp.units"),
        (f"{PPO}.reward_shaper.scale", f"{PPO}.reward_shaper.scale_value"),
    ],
)
def test_a_misspelt_key_names_the_nearest_one(key: str, meant: str) -> None:
    assert errors(f"{key}=1") == [f"{key} = 1: unknown key. Did you mean {meant}?"]


def test_a_key_like_no_other_lists_those_beside_it() -> None:
    assert errors("loss.zzzzzz=1") == ["loss.zzzzzz = 1: unknown key. Known here: name, w_max"]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["pipeline=cpu"], "pipeline = cpu: no effect, tensors stay on the device they are made on."),
        (["headless=False"], "headless = False: no effect, there is no viewer yet."),
        (
            ["num_threads=8"],
            "num_threads = 8: no effect, only Isaac Gym's PhysX reads it; the embedded engine has sim.threads.",
        ),
        (
            ["schedule=sync", "schedule.fallback=auto"],
            "schedule.fallback = auto: no effect, only schedule=lockstep falls back to turns.",
        ),
        (
            ["schedule.executor=threads", "schedule.graphs=False"],
            "schedule.graphs = False: no effect, executor is not cuda.",
        ),
        ([f"{PPO}.torch_compile=True"], f"{PPO}.torch_compile = True: no effect, nothing is compiled."),
        ([f"{PPO}.device=cuda:3"], f"{PPO}.device = cuda:3: no effect, the device is rl_device = auto."),
        (["advantage=gae", "advantage.rho_bar=5"], "advantage.rho_bar = 5.0: no effect, advantage=gae has no caps."),
        (["loss=behaviour", "loss.w_max=3"], "loss.w_max = 3.0: no effect, loss=behaviour has no weights."),
        (["schedule=sync", "loss.w_max=3"], "loss.w_max = 3.0: no effect at lag 0, where every weight is 1."),
        (["eval.enabled=False", "eval.num_envs=9"], "eval.num_envs = 9: no effect, eval.enabled is False."),
        (["report.console=off", "report.interval=1"], "report.interval = 1.0: no effect, it is for plain lines."),
        (
            [f"{PPO}.lr_schedule=fixed", f"{PPO}.kl_threshold=0.02"],
            f"{PPO}.kl_threshold = 0.02: no effect, lr_schedule is not adaptive.",
        ),
        (
            [f"{PPO}.truncate_grads=False", f"{PPO}.grad_norm=2"],
            f"{PPO}.grad_norm = 2.0: no effect, truncate_grads is False.",
        ),
        ([f"{PPO}.minibatch_size_per_env=8"], f"{PPO}.minibatch_size_per_env = 8: no effect, minibatch_size wins."),
        (["num_envs=7"], f"{PPO}.minibatch_size = 32768: 112 rows per update make 1 minibatch of 112 rows."),
        (
            ["num_envs=4099", f"{PPO}.minibatch_size=4096"],
            f"{PPO}.minibatch_size = 4096: 65584 rows per update make 17 minibatches of 3858 rows, 2 of them padding.",
        ),
    ],
)
def test_an_option_without_effect_is_said(arguments: List[str], line: str) -> None:
    given = [f"{PPO}.minibatch_size=32768", *arguments]
    assert warnings(*given) == [line]


def test_the_defaults_are_silent() -> None:
    for argv in ([], ["task=Cartpole"], ["schedule=sync"], ["advantage=vtrace"], ["loss=behaviour"], ["sim=mujoco"]):
        assert warnings(*argv) == []


def test_keys_given_at_their_default_are_silent() -> None:
    assert warnings("pipeline=gpu", "multi_gpu=False", f"{PPO}.torch_compile=False", "advantage.rho_bar=3.0") == []


@pytest.mark.parametrize("num_envs", [1, 7, 64, 4095, 4099])
def test_num_envs_alone_always_works(num_envs: int) -> None:
    config = compose(["task=Ant", f"num_envs={num_envs}"]).config
    assert (config.num_envs, config.ppo.num_actors, config.task.env["numEnvs"]) == (num_envs, num_envs, num_envs)


def test_what_follows_from_other_keys_is_resolved() -> None:
    config = compose(["num_envs=1e2", "experiment=first", "max_iterations=7"]).config
    assert (config.task_name, config.num_envs, config.experiment, config.max_iterations) == ("Ant", 100, "first", 7)
    assert config.schedule.executor == "threads"
    assert compose(["schedule.lag=0"]).config.schedule.executor == "inline"
    assert compose(["schedule=sync"]).config.schedule.executor == "inline"
    assert compose(["schedule.lag=0", "schedule.executor=threads"]).config.schedule.executor == "threads"


def test_iterations_end_at_the_first_limit() -> None:
    frames = f"{PPO}.max_frames"
    assert compose([]).config.max_iterations == 500
    assert compose([f"{frames}=65537"]).config.max_iterations == 2  # 65536 env steps per update
    assert compose([f"{frames}=65536"]).config.max_iterations == 1
    assert compose([f"{frames}=1e12"]).config.max_iterations == 500
    assert compose([f"{PPO}.max_epochs=-1", f"{frames}=65537"]).config.max_iterations == 2


def test_minibatch_per_env_is_turned_into_rows() -> None:
    config = compose([f"{PPO}.minibatch_size=0", f"{PPO}.minibatch_size_per_env=8", "num_envs=10"]).config
    assert config.ppo.minibatch_size == 80


@pytest.mark.parametrize("spelling", ["null", "None", "fixed", "identity", "constant"])
def test_rl_games_spellings_of_a_constant_rate(spelling: str) -> None:
    assert compose([f"{PPO}.lr_schedule={spelling}"]).config.ppo.lr_schedule == "constant"


def test_none_and_absent_mean_what_they_mean_in_rl_games(ant: DictConfig) -> None:
    cfg = changed(ant, train__params__config__bounds_loss_coef=None, train__params__config__score_to_win=None)
    config, _ = validate(cfg)
    assert (config.ppo.bounds_loss_coef, config.ppo.score_to_win) == (0.0, math.inf)
    del cfg.train.params.config["bounds_loss_coef"], cfg.train.params.config["value_bootstrap"]
    config, _ = validate(cfg)
    assert (config.ppo.bounds_loss_coef, config.ppo.value_bootstrap) == (0.0, True)


def test_the_composed_tree_is_left_as_it_is(ant: DictConfig) -> None:
    before = OmegaConf.to_yaml(ant)
    validate(ant)
    assert OmegaConf.to_yaml(ant) == before


def test_a_task_that_ignores_num_envs_is_an_error(ant: DictConfig) -> None:
    with pytest.raises(ConfigError, match=r"task\.env\.numEnvs = 64: does not follow num_envs=32"):
        validate(changed(ant, num_envs=32, task__env__numEnvs=64))


def test_weights_named_by_the_train_file_are_the_checkpoint(ant: DictConfig) -> None:
    cfg = changed(ant, train__params__load_checkpoint=True, train__params__load_path="own.pth")
    assert validate(cfg)[0].checkpoint == "own.pth"
    assert validate(changed(ant, train__params__load_path="own.pth"))[0].checkpoint == ""


def test_a_missing_value_is_an_error_with_its_key(ant: DictConfig) -> None:
    with pytest.raises(ConfigError, match=r"report\.plot = "):
        validate(changed(ant, report__plot="???"))


def test_a_validated_config_cannot_be_changed() -> None:
    config = compose([]).config
    assert isinstance(config, RunConfig)
    with pytest.raises(AttributeError):
        config.seed = 3  # type: ignore[misc]


FREE = ("schedule=free",)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "schedule.broadcast_every=3",
            "schedule.max_policy_lag = 1: cannot be kept when the weights are published every 3 updates only "
            "(needs at least 2). Use 2, or schedule.broadcast_every=2",
        ),
        (
            "schedule.max_lead_steps=15",
            "schedule.max_lead_steps = 15: must be 0 or at least broadcast_every * horizon_length = 16, else the "
            "learner waits for ever. Use 16",
        ),
        ("schedule.max_policy_lag=-1", "schedule.max_policy_lag = -1: must be at least 0. Use 0"),
        ("schedule.on_excess=wait", "schedule.on_excess = wait: must be one of throttle, mask, drop"),
        (
            "schedule.num_workers=5 num_envs=4",
            "schedule.num_workers = 5: is more than there are environments (4). Use 4",
        ),
    ],
)
def test_limits_of_the_free_schedule_that_cannot_be_kept_are_refused(words: str, text: str) -> None:
    assert any(error.startswith(text) for error in errors(*FREE, *words.split()))


def test_limits_that_can_be_kept_are_taken_and_others_have_no_effect() -> None:
    for words in ("broadcast_every=2", "broadcast_every=5 on_excess=drop", "max_policy_lag=0 max_lead_steps=16"):
        assert not warnings("task=Ant", *FREE, *(f"schedule.{word}" for word in words.split()))
    assert warnings("task=Ant", "schedule.max_policy_lag=3") == [
        "schedule.max_policy_lag = 3: no effect, schedule=lockstep has no such limit."
    ]


def test_wandb_is_asked_for_in_two_ways_and_what_it_does_not_read_is_named() -> None:
    def mode(*words: str) -> str:
        return compose(words).config.wandb

    assert (mode(), mode("wandb_activate=True"), mode("wandb=offline")) == ("disabled", "online", "offline")
    assert mode("wandb_activate=True", "wandb=offline") == "offline"
    assert "wandb_entity = me: no effect, wandb is disabled." in warnings("wandb_entity=me")
    assert not any("wandb" in text for text in warnings("wandb_entity=me", "wandb_activate=True"))
    assert not any("wandb" in text for text in warnings("wandb_group=g"))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["physics_engine=flex"], "physics_engine = flex: Isaac Gym's tensors, which sim=isaacgym is made of, work"),
        (["task.sim.use_gpu_pipeline=False"], "task.sim.use_gpu_pipeline = False: contradicts pipeline = gpu."),
        (["schedule=free", "schedule.num_workers=2"], "schedule.num_workers = 2: must be 1: Isaac Gym makes one"),
        (
            ["eval.every=10"],
            "eval.every = 10: must be 0: Isaac Gym makes one simulation per process, and training has it",
        ),
        (["capture_video=True"], "capture_video = True: must be False: Isaac Gym makes one simulation per process"),
        (["pipeline=tpu"], "pipeline = tpu: must be one of gpu, cpu. Use gpu"),
        (["task.sim.physx.num_position_iterations=0"], "task.sim.physx.num_position_iterations = 0: must be at least"),
        (["task.sim.physx.contact_ofset=1"], "task.sim.physx.contact_ofset = 1: unknown key. Did you mean task.sim"),
    ],
)
def test_what_isaac_gym_cannot_do_is_refused(arguments: List[str], error: str) -> None:
    (line,) = errors("sim=isaacgym", *arguments)
    assert line.startswith(error)


@pytest.mark.parametrize("words", [["pipeline=cpu"], ["num_threads=8"], ["task.sim.physx.contact_offset=0.01"]])
def test_isaac_gyms_own_keys_are_silent_on_it_alone(words: List[str]) -> None:
    path, value = words[0].split("=")
    key = "task.sim.physx = {'contact_offset': 0.01}" if "physx" in path else f"{path} = {value}"
    fit = f"{PPO}.minibatch_size=65536"
    assert compose([*words, fit, "sim=isaacgym"]).warnings == []
    assert [text.split(":  ")[0].split(": no effect")[0] for text in compose([*words, fit]).warnings] == [key]
