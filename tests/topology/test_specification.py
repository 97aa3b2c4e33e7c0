from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, Dict, List

import pytest

import isaac_appo.topology
from isaac_appo.topology.specification import FIELDS, LAYERS, check

EXAMPLE = json.loads(Path(isaac_appo.topology.__file__).with_name("example.json").read_text())
ROLLOUT, BUFFER, LEARNER, HOOKS = LAYERS


@pytest.fixture
def spec() -> Dict[str, Any]:
    return copy.deepcopy(EXAMPLE)


@pytest.fixture
def on_gpu(spec: Dict[str, Any]) -> Dict[str, Any]:
    spec["placement"] = "gpu-native"
    for layer in LAYERS[:3]:
        spec[layer]["device"] = "cuda:0"
    assert check(spec) == []
    return spec


def refused(spec: Dict[str, Any]) -> List[str]:
    return [f"{finding.path}: {finding.rule}" for finding in check(spec)]


def test_the_example_keeps_every_rule(spec: Dict[str, Any]) -> None:
    assert check(spec) == []


@pytest.mark.parametrize("layer", [*LAYERS, "process_topology"])
@pytest.mark.parametrize("value", [None, "a text", []])
def test_a_missing_layer_is_named(spec: Dict[str, Any], layer: str, value: Any) -> None:
    spec[layer] = value
    if value is None:
        del spec[layer]
    [text] = refused(spec)
    assert text.startswith(f"{layer}: this {'layer' if layer in LAYERS else 'section'} is required, with ")


@pytest.mark.parametrize(("layer", "field"), [(layer, field) for layer, fields in FIELDS.items() for field in fields])
def test_a_missing_field_is_named(spec: Dict[str, Any], layer: str, field: str) -> None:
    del spec[layer][field]
    assert [f"{f.path} = {f.value}" for f in check(spec)] == [f"{layer}.{field} = (missing)"]


@pytest.mark.parametrize("value", [{}, 1.5, [], "", ["", 1], [{"name": "x"}], True])
@pytest.mark.parametrize(("layer", "field"), [(layer, field) for layer, fields in FIELDS.items() for field in fields])
def test_a_field_of_the_wrong_kind_is_named(spec: Dict[str, Any], layer: str, field: str, value: Any) -> None:
    spec[layer][field] = value
    [text] = refused(spec)
    assert text.startswith(f"{layer}.{field}: must be ")


@pytest.mark.parametrize("name", ["policy", "placement", "algorithm"])
@pytest.mark.parametrize("value", [None, "sometimes", 7])
def test_the_head_of_a_specification(spec: Dict[str, Any], name: str, value: Any) -> None:
    spec[name] = value
    paths = [finding.path for finding in check(spec)]
    assert paths == ([] if name == "algorithm" and value == "sometimes" else [name])


def test_everything_missing_is_told_at_once() -> None:
    assert [finding.path for finding in check({})] == ["policy", "placement", "algorithm", *FIELDS]


@pytest.mark.parametrize("name", ["ReplayBuffer", "PrioritizedReplayBuffer", "replay_buffer"])
def test_no_replay_buffer_on_policy(spec: Dict[str, Any], name: str) -> None:
    spec[BUFFER]["buffer_class"] = name
    [text] = refused(spec)
    assert text.startswith(f"{BUFFER}.buffer_class: an on-policy run trains on fresh data only")


def test_no_rollout_buffer_off_policy(spec: Dict[str, Any]) -> None:
    spec.update(policy="off-policy", algorithm="SAC")
    [text] = refused(spec)
    assert text.startswith(f"{BUFFER}.buffer_class: an off-policy run reuses transitions")
    spec[BUFFER].update(buffer_class="ReplayBuffer", lifetime="circular, persists across updates")
    assert check(spec) == []


def test_a_buffer_that_is_neither(spec: Dict[str, Any]) -> None:
    for name in ("Deque", "ReplayRolloutBuffer"):
        spec[BUFFER]["buffer_class"] = name
        assert refused(spec) == [f"{BUFFER}.buffer_class: is neither a rollout buffer nor a replay buffer"]


def test_a_rollout_buffer_does_not_persist(spec: Dict[str, Any]) -> None:
    spec[BUFFER]["lifetime"] = "persists across updates"
    assert refused(spec) == [f"{BUFFER}.lifetime: a rollout buffer is cleared after each update"]


@pytest.mark.parametrize(
    ("algorithm", "policy"), [("PPO", "off-policy"), ("APPO (V-trace)", "off-policy"), ("SAC", "on-policy")]
)
def test_an_algorithm_is_of_its_kind(spec: Dict[str, Any], algorithm: str, policy: str) -> None:
    spec.update(algorithm=algorithm, policy=policy)
    if policy == "off-policy":
        spec[BUFFER]["buffer_class"] = "ReplayBuffer"
    [text] = refused(spec)
    assert text.startswith(f"policy: {algorithm} is ")


TRANSFERS = [
    "obs = obs.cpu()",
    "buffer.append(obs.numpy())",
    'obs.to("cpu")',
    "obs.to('cpu', non_blocking=True)",
    'obs.to(device="cpu")',
    "obs.to(torch.device('cpu'))",
    "done.item()",
    "rewards.tolist()",
    "x.detach().cpu ().numpy()",
]


@pytest.mark.parametrize("text", TRANSFERS)
@pytest.mark.parametrize("layer", [ROLLOUT, LEARNER])
def test_no_host_transfer_inside_a_gpu_native_loop(on_gpu: Dict[str, Any], layer: str, text: str) -> None:
    on_gpu[layer]["loop"].append(text)
    place = f"{layer}.loop[{len(on_gpu[layer]['loop']) - 1}]"
    assert refused(on_gpu) == [f"{place}: no host transfer inside a GPU-native loop: it stalls the GPU at every step"]


def test_a_transfer_in_any_field_of_the_loop_s_layers_is_found(on_gpu: Dict[str, Any]) -> None:
    on_gpu[LEARNER]["transfer"] = "batch.cpu() before each minibatch"
    on_gpu[BUFFER]["steps"] = [{"store": "obs.numpy()"}]
    assert [f.path for f in check(on_gpu)] == [f"{BUFFER}.steps[0].store", f"{LEARNER}.transfer"]


def test_a_cuda_device_makes_a_loop_gpu_native_whatever_is_declared(on_gpu: Dict[str, Any]) -> None:
    on_gpu["placement"] = "cpu-gpu-split"
    on_gpu[ROLLOUT]["loop"].append("obs.cpu()")
    assert len(check(on_gpu)) == 1


@pytest.mark.parametrize("text", ["never .cpu() here", "step, without obs.numpy()", "obs.to(device)", "cpu affinity"])
def test_what_is_no_transfer_passes(on_gpu: Dict[str, Any], text: str) -> None:
    on_gpu[ROLLOUT]["loop"].append(text)
    assert check(on_gpu) == []


def test_transfers_are_allowed_on_the_cpu_and_in_logging(spec: Dict[str, Any], on_gpu: Dict[str, Any]) -> None:
    on_gpu[HOOKS]["metrics"].append("losses.cpu()")
    assert check(on_gpu) == []
    host = copy.deepcopy(EXAMPLE)
    host[ROLLOUT]["loop"].append("obs.numpy()")
    assert check(host) == []


@pytest.mark.parametrize("layer", LAYERS[:3])
def test_a_gpu_native_loop_has_one_device(on_gpu: Dict[str, Any], layer: str) -> None:
    on_gpu[layer]["device"] = "cpu"
    found = check(on_gpu)
    assert f"{layer}.device" in [finding.path for finding in found]
    assert all("never leave the environments' GPU" in finding.rule for finding in found)
    on_gpu[layer]["device"] = "cuda:1"
    assert check(on_gpu)
