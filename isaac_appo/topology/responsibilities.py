"""Who is said to do what, held against the contract.

A responsibility is a short phrase (``step environments``, ``compute_gradients``). What it breaks is refused with the
rule; what no rule speaks about is listed as unchecked, so that silence never passes for consent.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Callable, Dict, List, Mapping, NamedTuple, Optional, Tuple

from isaac_appo.config.errors import Finding
from isaac_appo.topology.contract import LEARNER, POLICY, QUEUES, ROLLOUT

_QUEUES = ("queues", *(queue.name for queue in QUEUES))
KNOWN = (ROLLOUT, POLICY, LEARNER, *_QUEUES)
_ALIASES = {
    "rollout_workers": ROLLOUT,
    "rollout": ROLLOUT,
    "policy_workers": POLICY,
    "inference_worker": POLICY,
    "learners": LEARNER,
    "queue": "queues",
    "messages": "queues",
    "queue_messages": "queues",
}

_CHANGE = (
    r"(re ?)?(modif|chang|writ|overwrit|alter|adjust|edit|set|add|comput|calculat|estimat|assign|relabel|shap|scal|"
    r"clip|normali[sz]|correct|bootstrap|updat|discount)\w*"
)
_PAYOFF = r"(rewards?|returns|return (estimate|field|value|target)s?|the return|advantages?|value targets?)"
_PAYOFF_RULE = (
    "only the environment makes rewards and only the learner makes returns and advantages; nobody modifies them on "
    "the way"
)
_PAYOFF_FIX = "Leave rewards to the rollout worker and returns to the learner"
_DATA = r"(observations?|obs|trajector(y|ies)|transitions?|experiences?|images?|frames?|rollouts?)"
_SEND = r"(send|sent|push|put|enqueu|transmit|stream|ship|carr|pickl|seriali[sz]|transfer|post)\w*"
_INDEX = re.compile(r"\b(ind(ex|exes|ices)|slots?|handles?|ids?|pointers?|offsets?)\b")
_OBSERVES = re.compile(r"^(log|report|plot|record|show|display|monitor|print|count|measure)\w*\b")
_NEGATION = re.compile(r"\b(never|not|no|without|don t|doesn t|cannot|nothing)\b")


class Rule(NamedTuple):
    """A sentence of the contract and the phrases that break it."""

    applies: Callable[[str], bool]
    pattern: str
    text: str
    fix: str
    indices_pass: bool = False


def _others(*allowed: str) -> Callable[[str], bool]:
    return lambda component: component not in allowed and component not in _QUEUES


def _only(*components: str) -> Callable[[str], bool]:
    return lambda component: component in components


RULES: Tuple[Rule, ...] = (
    Rule(
        _others(LEARNER),
        r"\bgradients?\b|\bback ?prop\w*|\bbackward\b|\boptimi[sz]\w*|^(train|fit|learn)\w*\b|"
        r"\b(comput|calculat|minimi[sz]|evaluat|differentiat)\w* (\w+ )*loss(es)?\b|"
        r"^(updat|modif|chang|writ|overwrit|adjust|tun)\w* (\w+ )*(param\w*|weights?|polic(y|ies)|networks?|models?)\b",
        "only the learner computes gradients and updates parameters",
        "Leave it to the learner; a worker adopts what was published",
    ),
    Rule(
        _others(LEARNER, ROLLOUT, POLICY),
        rf"\b{_CHANGE} (\w+ )*{_PAYOFF}\b|^(the )?{_PAYOFF}$",
        _PAYOFF_RULE,
        _PAYOFF_FIX,
    ),
    Rule(
        _only(POLICY),  # it has no business with them at all, so an unknown verb changes nothing
        rf"\b(rewards?|advantages?|value targets?|the return)\b|\breturns$|\b{_CHANGE} (\w+ )*returns\b",
        _PAYOFF_RULE,
        _PAYOFF_FIX,
    ),
    Rule(
        _only(ROLLOUT),
        rf"\b{_CHANGE} (\w+ )*((?<!episode )returns|the return|advantages?|value targets?)\b|"
        r"\b(infer|inference)\b|\bforward pass\w*|\b(choos|select|sampl|predict|comput)\w* (\w+ )*actions?\b|"
        r"\b(run|evaluat|query|execut)\w* (\w+ )*(policy|policies|networks?|models?)\b",
        "rollout workers are environment-only: they step environments and write transition fields",
        "Leave actions to the policy worker and targets to the learner",
    ),
    Rule(
        _only(POLICY),
        r"\b(keep|kept|stor|hold|cach|maintain|accumulat|remember|own|track|sav)\w* (\w+ )*"
        r"(states?|hidden|memor(y|ies)|histor(y|ies)|observations?|trajector(y|ies)|transitions?|episodes?|statistics|"
        r"counters?|counts?|replay\w*)\b|^(be )?stateful\b",
        "policy workers are stateless: they batch observation-buffer indices and return action-buffer indices",
        "Keep it in the shared buffers, where the indices point",
    ),
    Rule(
        _only(POLICY),
        r"\b(step|reset|simulat)\w* (\w+ )*(env\w*|simulat\w*|physics)\b",
        "rollout workers alone step environments",
        "Leave it to the rollout worker",
    ),
    Rule(
        _others(LEARNER),
        r"\b(consum|dequeu|pop|replay|drain)\w* (\w+ )*(trajector(y|ies)|rollouts?|experiences?|batch(es)?)\b|"
        r"\b(train|learn)\w* (\w+ )*(on|from)\b",
        "the learner is the only consumer of completed trajectories",
        "Let the learner consume them, and read what you need from its metrics",
        True,
    ),
    Rule(
        _only(LEARNER),
        r"\b(step|reset|simulat)\w* (\w+ )*(env\w*|simulat\w*|physics)\b",
        "rollout workers alone step environments",
        "Leave it to the rollout worker",
    ),
    Rule(
        lambda component: component in (ROLLOUT, POLICY, LEARNER),
        rf"\b{_SEND} (\w+ )*{_DATA}\b",
        "queue messages carry buffer indices, not observations or trajectories",
        "Write them into the shared buffer and send its indices",
        True,
    ),
    Rule(
        _only(*_QUEUES),
        rf"\b({_DATA}|tensors?|arrays?|weights?|param\w*|actions?|pickl\w*|seriali[sz]\w*)\b",
        "queue messages carry buffer indices, not what the buffers hold",
        "Put its indices into the message",
        True,
    ),
)

# What the contract asks for, so that it need not be listed as unchecked.
_EXPECTED = re.compile(
    r"\b(step|reset|writ|batch|return|consum|updat|comput|adopt|publish|send|receiv|copy|read|load|index|indices|infer)"
)


class Verdict(NamedTuple):
    """What holding a map against the contract gave."""

    violations: List[Finding]
    unchecked: List[str]
    """Responsibilities that no rule speaks about, ``component: phrase``."""


def check(responsibilities: Mapping[str, Any]) -> Verdict:
    """Hold ``component -> list of phrases`` against every rule; all violations, in the order of the map."""
    violations: List[Finding] = []
    unchecked: List[str] = []
    for name, phrases in responsibilities.items():
        component, fault = _component(name)
        if fault is None:
            fault = _shape_fault(name, phrases)
        if fault is not None:
            violations.append(fault)
            continue
        for phrase in [phrases] if isinstance(phrases, str) else phrases:
            broken = _broken(component, phrase)
            violations += [Finding(name, phrase, rule.text, rule.fix) for rule in broken]
            if not broken and not _EXPECTED.search(_words(phrase)):
                unchecked.append(f"{name}: {phrase}")
    return Verdict(violations, unchecked)


def _component(name: str) -> Tuple[str, Optional[Finding]]:
    """The component that ``name`` means. One of the user's own is allowed, a misspelt one of ours is not."""
    plain = _words(name).replace(" ", "_")
    component = _ALIASES.get(plain, plain)
    if component in KNOWN:
        return component, None
    near = difflib.get_close_matches(component, [*KNOWN, *_ALIASES], n=1, cutoff=0.8)
    if near:
        fix = f"Did you mean {near[0]}?"
        return component, Finding("component", name, f"is none of {', '.join(KNOWN)}", fix)
    return component, None


def _shape_fault(name: str, phrases: Any) -> Optional[Finding]:
    texts = [phrases] if isinstance(phrases, str) else phrases
    if isinstance(texts, list) and texts and all(isinstance(text, str) and text.strip() for text in texts):
        return None
    return Finding(name, phrases, "must be a list of responsibilities, each a phrase", f"Write {name}: [step_env]")


def _broken(component: str, phrase: str) -> List[Rule]:
    if component not in KNOWN and _OBSERVES.search(_words(phrase)):
        return []
    return [rule for rule in RULES if rule.applies(component) and _breaks(rule, phrase)]


def _breaks(rule: Rule, phrase: str) -> bool:
    for part in re.split(r"[,;.:]|\band\b|\bthen\b", phrase.replace("_", " ").lower()):
        words = _words(part)
        if _NEGATION.search(words) or (rule.indices_pass and _INDEX.search(words)):
            continue
        if re.search(rule.pattern, words):
            return True
    return False


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()))


def as_json(verdict: Verdict) -> Dict[str, Any]:
    """Violations and unchecked phrases as plain containers."""
    return {
        "violations": [{"component": f.path, "responsibility": f.value, "rule": f.rule} for f in verdict.violations],
        "unchecked": verdict.unchecked,
    }
