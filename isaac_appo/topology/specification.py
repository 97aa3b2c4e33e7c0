"""The rules that an architecture's specification keeps: layers, fields, buffer class, data placement.

A specification is what ``isaac-appo blueprint --json`` prints, of this trainer or of any other system.
"""

from __future__ import annotations

import re
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Tuple

from isaac_appo.config.errors import Finding

Spec = Mapping[str, Any]

LAYERS = (
    "rollout_worker_layer",
    "experience_buffer_storage_layer",
    "learner_optimizer_layer",
    "evaluation_logging_hook_layer",
)
POLICIES = ("on-policy", "off-policy")
_KNOWN = {
    "on-policy": ("appo", "ppo", "a2c", "a3c", "trpo", "impala", "reinforce"),
    "off-policy": ("sac", "dqn", "td3", "ddpg", "rainbow", "qr-dqn", "ape-x"),
}
_TRANSFER = re.compile(
    r"""\.(cpu|numpy|item|tolist)\s*\(|\.to\s*\(\s*(device\s*=\s*)?(torch\.device\s*\(\s*)?["']cpu""", re.VERBOSE
)
_FORBIDS = re.compile(r"\b(never|no|not|without|avoid)\b[^;,]*$", re.IGNORECASE)


class Field(NamedTuple):
    """A field that must be there, and what it must be."""

    holds: Callable[[Any], bool]
    rule: str


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_list_of(holds: Callable[[Any], bool], value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(holds, value))


def _one_of(*known: str) -> Field:
    return Field(lambda value: value in known, f"must be one of {', '.join(known)}")


def _entries(*keys: str) -> Field:
    def holds(item: Any) -> bool:
        return isinstance(item, dict) and all(_is_text(item.get(key)) for key in keys)

    rule = f"must be a list of entries with a {' and a '.join(keys)}"
    return Field(lambda value: _is_list_of(holds, value), rule)


_TEXT = Field(_is_text, "must be a text")
_COUNT = Field(lambda value: type(value) is int and value >= 1, "must be a whole number of at least 1")
_TEXTS = Field(lambda value: _is_list_of(_is_text, value), "must be a list of texts")

HEAD: Dict[str, Tuple[Field, str]] = {
    "policy": (_one_of(*POLICIES), POLICIES[0]),
    "placement": (_one_of("cpu-native", "cpu-gpu-split", "gpu-native"), "cpu-native"),
    "algorithm": (_TEXT, "PPO"),
}
"""Fields beside the layers, each with an example."""
FIELDS: Dict[str, Dict[str, Field]] = {
    "process_topology": {"kind": _TEXT, "streams": _entries("name", "role"), "communication": _TEXT},
    LAYERS[0]: {
        "mode": Field(lambda value: value in ("sync", "async"), "must be sync or async"),
        "envs": _COUNT,
        "device": _TEXT,
        "generates": _TEXTS,
        "loop": _TEXTS,
    },
    LAYERS[1]: {
        **dict.fromkeys(("buffer_class", "lifetime", "location", "device"), _TEXT),
        **dict.fromkeys(("capacity_transitions", "capacity_bytes"), _COUNT),
    },
    LAYERS[2]: {**dict.fromkeys(("device", "transfer", "optimizer", "parameter_sync"), _TEXT), "loop": _TEXTS},
    LAYERS[3]: {"metrics": _TEXTS, "hooks": _entries("name", "frequency")},
}


def check(spec: Spec) -> List[Finding]:
    """Everything wrong with a specification: what is missing first, then what breaks a rule."""
    errors = list(_fields(spec))
    bad = {error.path for error in errors}
    for rule in (_algorithm, _buffer_class, _placement, _transfers):
        errors += [error for error in rule(spec) if not bad & {error.path, error.path.partition(".")[0]}]
    return errors


def _fields(spec: Spec) -> Iterator[Finding]:
    for name, (field, example) in HEAD.items():
        if not field.holds(spec.get(name)):
            yield Finding(name, spec.get(name, "(missing)"), field.rule, f"Write {name}: {example}")
    for layer, fields in FIELDS.items():
        given = spec.get(layer)
        if not isinstance(given, dict):
            what = "layer" if layer in LAYERS else "section"
            rule = f"this {what} is required, with {', '.join(fields)}"
            yield Finding(layer, "(missing)" if given is None else given, rule, f"Add {layer}")
            continue
        for name, field in fields.items():
            path = f"{layer}.{name}"
            if given.get(name) is None:
                yield Finding(path, "(missing)", f"is required and {field.rule}", f"Add {name} to {layer}")
            elif not field.holds(given[name]):
                yield Finding(path, given[name], field.rule, "Correct it")


def _algorithm(spec: Spec) -> Iterator[Finding]:
    """An algorithm that is known to be of the other kind than ``policy`` says."""
    words = re.findall(r"[a-z0-9-]+", str(spec.get("algorithm", "")).lower())
    for kind, names in _KNOWN.items():
        if spec.get("policy") != kind and any(word in names for word in words):
            yield Finding("policy", spec.get("policy"), f"{spec['algorithm']} is {kind}", f"Write policy: {kind}")


def _buffer_class(spec: Spec) -> Iterator[Finding]:
    buffer, path = _section(spec, LAYERS[1]), f"{LAYERS[1]}.buffer_class"
    name, lifetime = str(buffer.get("buffer_class", "")), str(buffer.get("lifetime", ""))
    replay, rollout = "replay" in name.lower(), "rollout" in name.lower()
    kind = spec.get("policy")
    if replay == rollout:
        fix = "Use RolloutBuffer, ReplayBuffer or PrioritizedReplayBuffer"
        yield Finding(path, name, "is neither a rollout buffer nor a replay buffer", fix)
    elif kind == "on-policy" and replay:
        rule = "an on-policy run trains on fresh data only: a replay buffer would feed it old policies' transitions"
        yield Finding(path, name, rule, "Use RolloutBuffer, cleared after each update")
    elif kind == "off-policy" and rollout:
        rule = "an off-policy run reuses transitions: a rollout buffer would throw them away after each update"
        yield Finding(path, name, rule, "Use ReplayBuffer, circular, persists across updates")
    elif rollout and "persist" in lifetime.lower():
        rule = "a rollout buffer is cleared after each update"
        yield Finding(f"{LAYERS[1]}.lifetime", lifetime, rule, "Write lifetime: cleared after each update")


def _is_gpu_native(spec: Spec) -> bool:
    return spec.get("placement") == "gpu-native" or _is_gpu(_section(spec, LAYERS[0]).get("device"))


def _is_gpu(device: Any) -> bool:
    return bool(re.match(r"(cuda|gpu|hip|tpu|mps)\b", str(device).lower()))


def _placement(spec: Spec) -> Iterator[Finding]:
    """In a GPU-native system the environment, the buffer and the learner share one device."""
    devices = [_section(spec, layer).get("device") for layer in LAYERS[:3]]
    for layer, device in zip(LAYERS, devices):
        if _is_gpu_native(spec) and isinstance(device, str) and not (_is_gpu(device) and device == devices[0]):
            rule = "in a GPU-native loop the tensors never leave the environments' GPU"
            yield Finding(f"{layer}.device", device, rule, "Use one GPU for all, or placement: cpu-gpu-split")


def _transfers(spec: Spec) -> Iterator[Finding]:
    """Host transfers named anywhere inside the layers that make up the loop; logging is outside it."""
    rule = "no host transfer inside a GPU-native loop: it stalls the GPU at every step"
    for layer in LAYERS[:3] if _is_gpu_native(spec) else ():
        for path, text in _texts(spec.get(layer), layer):
            found = _TRANSFER.search(text)
            if found and not _FORBIDS.search(text[: found.start()]):
                yield Finding(path, text, rule, "Keep it on the device until logging")


def _texts(value: Any, path: str) -> Iterator[Tuple[str, str]]:
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _texts(item, f"{path}.{key}")
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _texts(item, f"{path}[{index}]")


def _section(spec: Spec, name: str) -> Spec:
    section = spec.get(name)
    return section if isinstance(section, dict) else {}
