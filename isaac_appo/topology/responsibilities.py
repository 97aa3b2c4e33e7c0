"""Who is said to do what, held against the contract.

A responsibility is a short phrase (``step environments``, ``compute_gradients``). What it breaks is refused with the
rule; what no rule speaks about is listed as unchecked, so that silence never passes for consent.
"""

from __future__ import annotations

import difflib
import re
from typing import Any, Dict, List, Mapping, NamedTuple, Tuple

from isaac_appo.config.errors import Finding
from isaac_appo.topology.contract import LEARNER, POLICY, QUEUES, ROLLOUT

QUEUE, OTHER = "queues", "other"
"""Any of the queues; a component of the user's own."""
_NAMES = (ROLLOUT, POLICY, LEARNER, QUEUE, *(queue.name for queue in QUEUES))
_MEANS: Dict[str, str] = {
    **dict.fromkeys((ROLLOUT, "rollout_workers", "rollout"), ROLLOUT),
    **dict.fromkeys((POLICY, "policy_workers", "inference_worker"), POLICY),
    **dict.fromkeys((LEARNER, "learners"), LEARNER),
    **dict.fromkeys((*_NAMES[3:], "queue", "messages", "queue_messages"), QUEUE),
}
_WORKERS = (ROLLOUT, POLICY, OTHER)

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
    """A sentence of the contract, whom it binds, and the phrases that break it."""

    binds: Tuple[str, ...]
    pattern: str
    text: str
    fix: str
    indices_pass: bool = False


RULES = (
    Rule(
        _WORKERS,
        r"\bgradients?\b|\bback ?prop\w*|\bbackward\b|\boptimi[sz]\w*|^(train|fit|learn)\w*\b|"
        r"\b(comput|calculat|minimi[sz]|evaluat|differentiat)\w* (\w+ )*loss(es)?\b|"
        r"^(updat|modif|chang|writ|overwrit|adjust|tun)\w* (\w+ )*(param\w*|weights?|polic(y|ies)|networks?|models?)\b",
        "only the learner computes gradients and updates parameters",
        "Leave it to the learner; a worker adopts what was published",
    ),
    Rule((OTHER,), rf"\b{_CHANGE} (\w+ )*{_PAYOFF}\b|^(the )?{_PAYOFF}$", _PAYOFF_RULE, _PAYOFF_FIX),
    Rule(
        (POLICY,),  # it has no business with them at all, so an unknown verb changes nothing
        rf"\b(rewards?|advantages?|value targets?|the return)\b|\breturns$|\b{_CHANGE} (\w+ )*returns\b",
        _PAYOFF_RULE,
        _PAYOFF_FIX,
    ),
    Rule(
        (ROLLOUT,),
        rf"\b{_CHANGE} (\w+ )*((?<!episode )returns|the return|advantages?|value targets?)\b|"
        r"\b(infer|inference)\b|\bforward pass\w*|\b(choos|select|sampl|predict|comput)\w* (\w+ )*actions?\b|"
        r"\b(run|evaluat|query|execut)\w* (\w+ )*(policy|policies|networks?|models?)\b",
        "rollout workers are environment-only: they step environments and write transition fields",
        "Leave actions to the policy worker and targets to the learner",
    ),
    Rule(
        (POLICY,),
        r"\b(keep|kept|stor|hold|cach|maintain|accumulat|remember|own|track|sav)\w* (\w+ )*"
        r"(states?|hidden|memor(y|ies)|histor(y|ies)|observations?|trajector(y|ies)|transitions?|episodes?|statistics|"
        r"counters?|counts?|replay\w*)\b|^(be )?stateful\b",
        "policy workers are stateless: they batch observation-buffer indices and return action-buffer indices",
        "Keep it in the shared buffers, where the indices point",
    ),
    Rule(
        (POLICY, LEARNER),
        r"\b(step|reset|simulat)\w* (\w+ )*(env\w*|simulat\w*|physics)\b",
        "rollout workers alone step environments",
        "Leave it to the rollout worker",
    ),
    Rule(
        _WORKERS,
        r"\b(consum|dequeu|pop|replay|drain)\w* (\w+ )*(trajector(y|ies)|rollouts?|experiences?|batch(es)?)\b|"
        r"\b(train|learn)\w* (\w+ )*(on|from)\b",
        "the learner is the only consumer of completed trajectories",
        "Let the learner consume them, and read what you need from its metrics",
        True,
    ),
    Rule(
        (ROLLOUT, POLICY, LEARNER),
        rf"\b{_SEND} (\w+ )*{_DATA}\b",
        "queue messages carry buffer indices, not observations or trajectories",
        "Write them into the shared buffer and send its indices",
        True,
    ),
    Rule(
        (QUEUE,),
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
    verdict = Verdict([], [])
    for name, given in responsibilities.items():
        phrases = [given] if isinstance(given, str) else given
        component = _words(name).replace(" ", "_")
        near = difflib.get_close_matches(component, _MEANS, n=1, cutoff=0.8)
        if near and component not in _MEANS:  # one of the user's own is allowed, a misspelt one of ours is not
            fault = Finding("component", name, f"is none of {', '.join(_NAMES)}", f"Did you mean {near[0]}?")
            verdict.violations.append(fault)
        elif not _are_phrases(phrases):
            rule = "must be a list of responsibilities, each a phrase"
            verdict.violations.append(Finding(name, given, rule, f"Write {name}: [step_env]"))
        else:
            for phrase in phrases:
                _judge(verdict, name, _MEANS.get(component, OTHER), phrase)
    return verdict


def _are_phrases(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(text, str) and text.strip() for text in value)


def _judge(verdict: Verdict, name: str, kind: str, phrase: str) -> None:
    observes = kind == OTHER and _OBSERVES.search(_words(phrase))
    broken = [] if observes else [rule for rule in RULES if kind in rule.binds and _breaks(rule, phrase)]
    verdict.violations.extend(Finding(name, phrase, rule.text, rule.fix) for rule in broken)
    if not broken and not _EXPECTED.search(_words(phrase)):
        verdict.unchecked.append(f"{name}: {phrase}")


def _breaks(rule: Rule, phrase: str) -> bool:
    parts = re.split(r"[,;.:]|\band\b|\bthen\b", phrase.replace("_", " ").lower())
    for words in map(_words, parts):
        excused = _NEGATION.search(words) or (rule.indices_pass and _INDEX.search(words))
        if not excused and re.search(rule.pattern, words):
            return True
    return False


def _words(text: str) -> str:
    return " ".join(re.findall(r"[a-z0-9]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", text).lower()))
