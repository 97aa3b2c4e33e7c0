from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

import isaac_appo.topology
from isaac_appo.budgets import measure_update, resolve_budgets
from isaac_appo.build import build_program, build_workers, learner_settings, model_maker, pipeline_settings
from isaac_appo.commands.compose import compose
from isaac_appo.config.errors import ConfigError
from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.topology.blueprint import blueprint_of, groups_of, layout_of
from isaac_appo.topology.guard import fields_of
from isaac_appo.topology.specification import check

SMALL = ["task=Cartpole", "num_envs=30", "train.params.config.horizon_length=8"]
EXAMPLE = Path(isaac_appo.topology.__file__).with_name("example.json")


def blueprint(*words: str) -> Dict[str, Any]:
    return blueprint_of(compose(list(words)).config)


@pytest.mark.parametrize(
    "words",
    [
        ["schedule=sync", "train.params.config.minibatch_size=60"],
        ["schedule.lag=3", "train.params.config.minibatch_size=77"],  # 240 rows in minibatches that need padding
        ["schedule=free", "schedule.num_workers=4", "schedule.max_lead_steps=40"],
        [
            "schedule=free",
            "schedule.broadcast_every=3",
            "schedule.max_policy_lag=2",
            "train.params.config.normalize_value=False",
        ],
    ],
)
def test_sizes_are_those_of_the_pipeline_that_is_built(words: List[str], tmp_path: Path) -> None:
    config = compose([*SMALL, *words]).config
    config, _ = resolve_budgets(config, {"policy": 1, "learner": 1}, measure_update, 2)
    learner, envs = learner_settings(config), build_workers(config, str(tmp_path))
    make = model_maker(config, envs[0].num_obs, envs[0].num_actions)
    program = build_program(config, learner.minibatches)
    pipeline = Pipeline(envs, make, program, pipeline_settings(config), learner)
    fields = fields_of(pipeline)

    def size(*prefixes: str) -> int:
        found = [t for name, tensors in fields.items() if name.split(".")[0] in prefixes for t in tensors]
        return sum(t.numel() * t.element_size() for t in found)

    real = {
        "slabs": size("slab"),
        "batch": size("batch"),
        "targets": sum(t.numel() * 4 for name, t in vars(pipeline.learner).items() if name.endswith("_TN")),
        "policy buffers": size("weights", "acting"),
        "snapshots": size("snapshots"),
        "optimizer": 3 * pipeline.learner.policy.parameters.numel() * 4,
    }
    assert {group.name: group.bytes for group in groups_of(layout_of(config))} == real
    spec = blueprint_of(config)
    buffer = spec["experience_buffer_storage_layer"]
    assert buffer["capacity_bytes"] == real["slabs"]
    rows = sum(slab.rewards_TN.numel() for worker in pipeline.workers for slab in worker.slabs)
    assert buffer["capacity_transitions"] == rows
    assert spec["total_bytes"] == sum(real.values())
    shapes = {t["name"]: t["shape"] for t in buffer["slab_of_first_worker"]}
    assert shapes == {name: list(t.shape) for name, t in pipeline.workers[0].slabs[0].tensors().items()}
    devices = {str(tensor.device) for tensors in fields.values() for tensor in tensors}
    assert devices == {group["device"] for group in spec["tensor_groups"]} == {buffer["device"]} == {"cpu"}
    for env in envs:
        env.close()


def test_a_slab_by_hand() -> None:
    spec = blueprint(*SMALL, "schedule=sync")
    # Cartpole: O = 4, A = 1. Per row: actions, mu, sigma, neglogp, rewards, episode return 4 bytes each; three flags
    # of one byte; version 8; episode length 4. Observations and values have a row more.
    assert spec["experience_buffer_storage_layer"]["capacity_bytes"] == 8 * 30 * (6 * 4 + 3 + 8 + 4) + 9 * 30 * 5 * 4
    assert spec["experience_buffer_storage_layer"]["capacity_transitions"] == 240


def test_the_topology_follows_the_schedule() -> None:
    sync = blueprint(*SMALL, "schedule=sync")
    assert sync["rollout_worker_layer"]["mode"] == "sync"
    assert sync["process_topology"]["executor"] == "inline" and sync["process_topology"]["lag"] == "0"
    free = blueprint(*SMALL, "schedule=free", "schedule.num_workers=4", "schedule.policy_threads=2")
    assert free["rollout_worker_layer"]["mode"] == "async" and free["rollout_worker_layer"]["workers"] == 4
    assert free["process_topology"]["kind"] == "single-process"
    assert free["process_topology"]["lag"] == "0..1"
    assert [(s["name"], s["envs"], s["torch_threads"]) for s in free["process_topology"]["streams"]] == [
        ("policy/0", 8, 2),
        ("policy/1", 8, 2),
        ("policy/2", 7, 2),
        ("policy/3", 7, 2),
        ("learner", 0, 0),
    ]


def test_hooks_and_their_frequency() -> None:
    def hooks(*words: str) -> Dict[str, str]:
        found = blueprint(*SMALL, *words)["evaluation_logging_hook_layer"]["hooks"]
        return {hook["name"]: hook["frequency"] for hook in found}

    on = hooks("report.interval=2.5", "train.params.config.save_frequency=7", "wandb_activate=True")
    assert on["metrics.csv"] == on["TensorBoard"] == on["W&B"] == "every update"
    assert on["console"] == "every 2.5 s, or live"
    assert on["checkpoint"] == "every 7 updates and at the end"
    assert on["evaluation"] == on["reward curve"] == "at the end"
    off = hooks(
        "report.tensorboard=False",
        "report.console=off",
        "report.plot=False",
        "eval.enabled=False",
        "train.params.config.save_frequency=0",
    )
    assert off["W&B"] == off["TensorBoard"] == off["console"] == off["evaluation"] == off["reward curve"] == "never"
    assert off["checkpoint"] == "at the end"


@pytest.mark.parametrize("words", [[], ["task=Cartpole", "schedule=free"], ["schedule=sync", "advantage=vtrace"]])
def test_every_run_keeps_the_rules(words: List[str]) -> None:
    assert check(blueprint(*words)) == []


def test_the_shipped_example_is_the_blueprint_of_the_defaults() -> None:
    assert json.loads(EXAMPLE.read_text()) == blueprint()


def test_a_device_that_no_engine_serves_is_refused() -> None:
    with pytest.raises(ConfigError, match="sim_device = cuda:0"):
        blueprint(*SMALL, "sim_device=cuda:0")
