"""The topology's contract, from the command line inwards. By itself too: ``python tests/test_topology_contract.py``."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
from pathlib import Path
from typing import Any, Dict, List, Tuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from isaac_appo.commands.main import main
from isaac_appo.schedule.program import Free, Gate, Lockstep, Op, Program, Record, Wait
from isaac_appo.topology.contract import QUEUES

DESIGN = {
    "--rollout-workers": 2,
    "--policy-workers": 1,
    "--learners": 1,
    "--envs-per-worker": 4,
    "--trajectory-length": 8,
    "--learner-batch-size": 32,
}


def run(*words: str, **flags: int) -> Tuple[int, str, str]:
    """Exit code, standard output and standard error of ``isaac-appo topology`` with the design's flags."""
    changed = {**DESIGN, **{"--" + name.replace("_", "-"): value for name, value in flags.items()}}
    typed = [part for flag, value in changed.items() for part in (flag, str(value))]
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(["topology", *typed, *words])
    return code, out.getvalue(), err.getvalue()


def as_json(*words: str, **flags: int) -> Dict[str, Any]:
    code, out, _ = run("--json", *words, **flags)
    assert code == 0
    found: Dict[str, Any] = json.loads(out)
    return found


def verdict(responsibilities: Dict[str, List[str]]) -> Tuple[int, str]:
    """Exit code and refusal for a map of responsibilities."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "map.yaml"
        path.write_text(json.dumps(responsibilities))
        code, out, err = run("--responsibilities", str(path))
        assert bool(out) is (code == 0)
        return code, err


def test_the_estimates_of_the_documented_design() -> None:
    found = as_json()
    assert found["produced_samples"] == 2 * 4 * 8 == 64
    assert found["lag_pressure"] == 64 / 32 - 1 == 1.0
    assert found["accepted"] is True
    _, text, _ = run()
    assert "produced samples per rollout iteration: 64 (2 workers x 4 envs x 8 steps)" in text
    assert "policy-lag pressure, max(0, produced / batch - 1): 1" in text


def test_lag_pressure_is_never_negative() -> None:
    assert as_json(learner_batch_size=64)["lag_pressure"] == 0.0
    assert as_json(learner_batch_size=1000)["lag_pressure"] == 0.0
    assert as_json(learner_batch_size=48)["lag_pressure"] == 64 / 48 - 1
    assert as_json(rollout_workers=5, envs_per_worker=3, trajectory_length=7)["produced_samples"] == 105


def test_the_three_roles() -> None:
    roles = {role["component"]: role for role in as_json()["roles"]}
    assert list(roles) == ["rollout_worker", "policy_worker", "learner"]
    assert roles["rollout_worker"]["summary"] == "environment-only"
    assert roles["rollout_worker"]["duties"] == ["step environments", "write transition fields"]
    assert "compute gradients" in roles["rollout_worker"]["never"]
    assert roles["policy_worker"]["summary"] == "stateless"
    assert "return action-buffer indices" in roles["policy_worker"]["duties"]
    assert "modify rewards or returns" in roles["policy_worker"]["never"]
    assert "update trainable parameters" in roles["learner"]["duties"]
    assert "only consumer of completed trajectories" in roles["learner"]["summary"]


def test_the_four_queues() -> None:
    ways = {queue["name"]: (queue["producer"], queue["consumer"]) for queue in as_json()["queues"]}
    assert ways == {
        "observation_requests": ("rollout_worker", "policy_worker"),
        "action_replies": ("policy_worker", "rollout_worker"),
        "completed_trajectories": ("rollout_worker", "learner"),
        "policy_updates": ("learner", "policy_worker"),
    }
    assert all("ind" in queue["payload"] for queue in as_json()["queues"])


def test_the_queues_are_steps_of_every_schedule_and_carry_indices_only() -> None:
    shape = {"horizon": 3, "epochs": 1, "minibatches": 2, "num_updates": 4, "num_workers": 2}
    programs: List[Program] = [Lockstep(**shape, lag=1), Free(**shape, lead=6)]
    for program in programs:
        names = set()
        for steps in program.streams().values():
            for step in steps:
                carried = step.args if isinstance(step, (Op, Gate)) else (step.at,)
                assert all(type(item) is int for item in carried)
                names.add(step.name if isinstance(step, (Op, Gate)) else step.event)
                assert isinstance(step, (Op, Gate, Wait, Record))
        for queue in QUEUES:
            for name in queue.steps:
                assert any(name == known or (name[-1] == "/" and known.startswith(name)) for known in names), name


def test_it_claims_no_throughput() -> None:
    assert "not a throughput claim" in as_json()["limitation"]
    assert "Measure with a wall clock" in run()[1]


def test_a_design_that_keeps_the_contract_is_accepted() -> None:
    good = {
        "rollout_workers": ["step_environments", "write transition fields", "write rewards"],
        "policy_workers": ["batch observation-buffer indices and return action-buffer indices"],
        "learner": ["consume completed trajectories", "compute gradients and returns", "update parameters"],
        "queues": ["buffer indices", "indices of observations"],
    }
    assert verdict(good) == (0, "")


def test_rollout_workers_that_compute_gradients_are_rejected() -> None:
    code, text = verdict({"rollout_workers": ["step environments", "compute gradients"]})
    assert code == 2
    assert "rejected, 1 violation" in text
    assert "rollout_workers = compute gradients: only the learner computes gradients" in text


def test_policy_workers_that_modify_rewards_or_returns_are_rejected() -> None:
    for phrase in ("modify rewards", "modify returns", "modify rewards/returns", "rescale_rewards", "shape the reward"):
        code, text = verdict({"policy_workers": [phrase]})
        assert code == 2, phrase
        assert f"policy_workers = {phrase}: only the environment makes rewards" in text


def test_every_violation_is_listed() -> None:
    code, text = verdict(
        {
            "rollout_workers": ["backpropagate"],
            "policy_workers": ["modify rewards", "keep recurrent state"],
            "evaluator": ["consume trajectories"],
            "queues": ["serialized observations"],
        }
    )
    assert code == 2
    assert "rejected, 5 violations" in text
    rules = ("only the learner computes", "stateless", "only consumer", "carry buffer indices", "only the environment")
    assert all(rule in text for rule in rules)
    assert len(text.splitlines()) == 6


def test_a_second_learner_is_rejected() -> None:
    code, out, text = run(learners=2)
    assert (code, out) == (2, "")
    assert "--learners = 2: a policy has one learner" in text


def test_bad_numbers_are_errors_with_rule_and_fix_all_at_once() -> None:
    code, out, text = run(rollout_workers=0, envs_per_worker=-1, learner_batch_size=0)
    assert (code, out) == (2, "")
    assert "3 errors" in text
    assert "--rollout-workers = 0: must be a whole number of at least 1. Use --rollout-workers 2" in text
    assert "--envs-per-worker = -1: must be a whole number" in text


if __name__ == "__main__":
    tests = [item for name, item in sorted(globals().items()) if name.startswith("test_")]
    for test in tests:
        test()
    print(f"{len(tests)} passed")
