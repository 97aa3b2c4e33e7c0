from __future__ import annotations

from typing import Any, List

import pytest

from isaac_appo.topology.contract import ROLES
from isaac_appo.topology.responsibilities import check


def rules(component: str, phrase: str) -> List[str]:
    return [finding.rule for finding in check({component: [phrase]}).violations]


@pytest.mark.parametrize(
    "component", ["rollout_worker", "rollout_workers", "Rollout Workers", "policy_worker", "logger"]
)
@pytest.mark.parametrize(
    "phrase",
    [
        "compute gradients",
        "compute_gradients",
        "step environments and compute gradients",
        "backpropagate the loss",
        "run the optimizer",
        "update parameters",
        "modify policy weights",
        "compute the PPO loss",
        "train",
    ],
)
def test_only_the_learner_computes_gradients(component: str, phrase: str) -> None:
    [rule] = [text for text in rules(component, phrase) if "gradients" in text]
    assert rule == "only the learner computes gradients and updates parameters"
    assert rules("learner", phrase.replace("step environments and ", "")) == []


@pytest.mark.parametrize("component", ["policy_workers", "policyWorkers", "inference_worker"])
@pytest.mark.parametrize(
    "phrase",
    [
        "modify rewards",
        "tweak rewards",
        "modify_returns",
        "modify rewards/returns",
        "modify returns of episodes",
        "compute advantages",
        "choose actions, clip the reward",
        "rewards",
    ],
)
def test_policy_workers_leave_rewards_and_returns_alone(component: str, phrase: str) -> None:
    [rule] = rules(component, phrase)
    assert rule.startswith("only the environment makes rewards")


@pytest.mark.parametrize(
    "phrase", ["keep recurrent state", "store trajectories", "cache observations", "accumulate episode statistics"]
)
def test_policy_workers_keep_nothing(phrase: str) -> None:
    [rule] = rules("policy_worker", phrase)
    assert rule.startswith("policy workers are stateless")


@pytest.mark.parametrize(
    "phrase", ["select actions", "run the policy", "policy inference", "compute advantages", "bootstrap returns"]
)
def test_rollout_workers_are_environment_only(phrase: str) -> None:
    [rule] = rules("rollout_worker", phrase)
    assert rule.startswith("rollout workers are environment-only")


@pytest.mark.parametrize("component", ["evaluator", "policy_worker", "rollout_worker"])
def test_the_learner_is_the_only_consumer_of_trajectories(component: str) -> None:
    [rule] = rules(component, "consume completed trajectories")
    assert rule == "the learner is the only consumer of completed trajectories"
    assert rules("learner", "consume completed trajectories") == []


@pytest.mark.parametrize("component", ["learner", "policy_worker"])
def test_rollout_workers_alone_step_environments(component: str) -> None:
    assert rules(component, "step the environments") == ["rollout workers alone step environments"]


@pytest.mark.parametrize("phrase", ["observations", "serialized trajectories", "action tensors", "pickled weights"])
@pytest.mark.parametrize("queue", ["queues", "messages", "observation_requests", "policy_updates"])
def test_queues_carry_indices_only(queue: str, phrase: str) -> None:
    [rule] = rules(queue, phrase)
    assert rule.startswith("queue messages carry buffer indices")
    assert rules(queue, f"indices of {phrase}") == []


def test_workers_send_indices_not_data() -> None:
    [rule] = rules("rollout_worker", "send observations to the policy workers")
    assert rule == "queue messages carry buffer indices, not observations or trajectories"
    assert rules("rollout_worker", "send observation-buffer indices to the policy workers") == []


@pytest.mark.parametrize(
    ("component", "phrase"),
    [
        ("rollout_worker", "step environments"),
        ("rollout_worker", "write rewards and episode returns"),
        ("rollout_worker", "write episode returns"),
        ("rollout_worker", "never compute gradients"),
        ("rollout_worker", "step environments without consuming trajectories"),
        ("policy_worker", "batch observation-buffer indices and return action-buffer indices"),
        ("policy_worker", "compute actions and values, then return their indices"),
        ("policy_worker", "adopt published weights"),
        ("policy_worker", "do not modify rewards"),
        ("learner", "compute returns, advantages and gradients; update parameters"),
        ("logger", "log rewards, losses and gradient norms"),
    ],
)
def test_what_keeps_the_contract_passes(component: str, phrase: str) -> None:
    assert rules(component, phrase) == []


def test_a_denial_excuses_its_own_part_only() -> None:
    assert len(rules("rollout_worker", "never idle, compute gradients")) == 1


def test_the_duties_of_the_contract_keep_it_and_what_it_forbids_does_not() -> None:
    for role in ROLES:
        found = check({role.component: list(role.duties)})
        assert found == ([], [])
        for phrase in role.never[:-1] if role.component == "learner" else role.never:
            assert rules(role.component, phrase), phrase


def test_what_no_rule_speaks_about_is_listed() -> None:
    found = check({"policy_worker": ["brew coffee", "return action indices"], "chef": "cook"})
    assert found.violations == []
    assert found.unchecked == ["policy_worker: brew coffee", "chef: cook"]


def test_a_misspelt_component_is_not_taken_for_another() -> None:
    [finding] = check({"rolout_worker": ["compute gradients"]}).violations
    assert (finding.path, finding.value, finding.fix) == ("component", "rolout_worker", "Did you mean rollout_worker?")


@pytest.mark.parametrize("phrases", [None, 3, [], [""], ["a", 1], {"a": "b"}])
def test_responsibilities_are_phrases(phrases: Any) -> None:
    [finding] = check({"learner": phrases}).violations
    assert finding.rule == "must be a list of responsibilities, each a phrase"


def test_all_violations_in_the_order_of_the_map() -> None:
    found = check({"policy_worker": ["modify rewards"], "rollout_worker": ["step envs", "backward pass"]})
    assert [(f.path, f.value) for f in found.violations] == [
        ("policy_worker", "modify rewards"),
        ("rollout_worker", "backward pass"),
    ]
