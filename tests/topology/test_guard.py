"""The guard, on a pipeline of plain functions with one planted violation each, and on real ones."""

from __future__ import annotations

import threading
from typing import Any, Callable, Dict, List

import pytest
import torch
from torch import Tensor, nn

from isaac_appo.schedule.pipeline import Pipeline
from isaac_appo.topology.guard import ContractError, PipelineGuard
from tests.helpers import cartpole_pipeline, weights


class FakePipeline:
    """Two slabs of 3 rows, a batch and weights; operations write what the contract lets them, and ``plant`` more."""

    def __init__(self) -> None:
        self.slabs = [{name: torch.zeros(3, 2) for name in ("obs", "values", "rewards", "status")} for _ in range(2)]
        self.fields: Dict[str, List[Tensor]] = {
            f"slab.{name}": [slab[name] for slab in self.slabs] for name in self.slabs[0]
        }
        self.batch = {"batch.returns": torch.zeros(6), "batch.advantages": torch.zeros(6)}
        self.fields.update({name: [tensor] for name, tensor in self.batch.items()})
        self.weights = nn.Parameter(torch.ones(4))
        self.fields["weights"] = [self.weights]
        self.guard = PipelineGuard(self.fields)

    def run(self, name: str, *work: Callable[[], Any]) -> Any:
        """Run the operation ``name`` that does ``work``."""
        return self.guard.wrap({name: lambda *args: [do() for do in work]})[name](0, 1, 2)


@pytest.fixture
def fake() -> FakePipeline:
    return FakePipeline()


def refusal(fake: FakePipeline, name: str, *work: Callable[[], Any]) -> str:
    with pytest.raises(ContractError) as error:
        fake.run(name, *work)
    return str(error.value)


def test_what_the_contract_allows_passes(fake: FakePipeline) -> None:
    slab = fake.slabs[1]
    fake.run("act", lambda: slab["obs"].fill_(1.0), lambda: slab["values"][0].fill_(2.0))  # another row is fine
    fake.run("step", lambda: slab["rewards"].fill_(1.0), lambda: slab["status"].fill_(1.0))
    fake.run("bootstrap", lambda: slab["obs"][-1].fill_(3.0), lambda: slab["values"][-1].fill_(3.0))
    fake.run("targets", lambda: fake.batch["batch.returns"].fill_(1.0))
    fake.run("load", lambda: slab["status"].fill_(3.0))
    assert fake.guard.calls == {"act": 1, "step": 1, "bootstrap": 1, "targets": 1, "load": 1}


def test_the_result_of_the_operation_is_passed_on(fake: FakePipeline) -> None:
    assert fake.run("act", lambda: "done") == ["done"]


def test_a_policy_operation_that_writes_rewards(fake: FakePipeline) -> None:
    text = refusal(fake, "act", lambda: fake.slabs[1]["rewards"][2].add_(1e-6))
    assert text.startswith("operation act(0, 1, 2) wrote slab.rewards: policy_worker: it may write slab.actions, ")
    assert fake.guard.calls == {}


@pytest.mark.parametrize("field", ["batch.returns", "batch.advantages"])
@pytest.mark.parametrize("name", ["act", "bootstrap", "adopt", "step", "cut"])
def test_nobody_but_the_learner_writes_returns_and_advantages(fake: FakePipeline, name: str, field: str) -> None:
    text = refusal(fake, name, lambda: fake.batch[field][3].fill_(1.0))
    assert f"operation {name}(0, 1, 2) wrote {field}" in text
    assert "only the learner reads trajectories into batches and makes returns and advantages" in text


@pytest.mark.parametrize("name", ["act", "step", "copy"])
def test_nobody_but_the_learner_updates_parameters(fake: FakePipeline, name: str) -> None:
    text = refusal(fake, name, lambda: fake.weights.data.mul_(2.0))
    assert f"operation {name}(0, 1, 2) wrote weights" in text and "only the learner updates parameters" in text
    fake.run("minibatch", lambda: fake.weights.data.mul_(2.0))


def test_a_rollout_operation_that_writes_observations_or_values(fake: FakePipeline) -> None:
    for field in ("obs", "values"):
        assert f"wrote slab.{field}" in refusal(fake, "step", lambda f=field: fake.slabs[0][f].add_(1.0))


@pytest.mark.parametrize("name", ["targets", "minibatch", "finish", "boundary", "publish"])
def test_the_learner_leaves_the_slabs_alone(fake: FakePipeline, name: str) -> None:
    assert "wrote slab.rewards: learner" in refusal(fake, name, lambda: fake.slabs[0]["rewards"].add_(1.0))


def test_bootstrap_writes_the_last_row_only(fake: FakePipeline) -> None:
    text = refusal(fake, "bootstrap", lambda: fake.slabs[0]["values"][1].fill_(1.0))
    assert "wrote slab.values before its last row" in text


def test_writes_are_seen_bit_by_bit(fake: FakePipeline) -> None:
    rewards = fake.slabs[0]["rewards"]
    rewards[0, 0] = float("nan")
    fake.run("act", lambda: None)  # NaN is not taken for a change
    refusal(fake, "act", lambda: rewards[1].fill_(-0.0))
    rewards[0, 0], rewards[0, 1] = 1.0, 2.0
    refusal(fake, "act", lambda: rewards[0].copy_(rewards[0].flip(0)))  # the sum stays the same


@pytest.mark.parametrize("name", ["act", "bootstrap", "step", "cut"])
@pytest.mark.parametrize(
    "work",
    [
        lambda p: p * 2.0,
        lambda p: torch.max(p.view(2, 2), dim=0),
        lambda p: torch.stack([p, p]),
        lambda p: list(p.split(2)),
        lambda p: nn.functional.linear(torch.ones(1, 4), p.view(1, 4)),
        lambda p: torch.zeros(3, requires_grad=True),
    ],
)
def test_gradients_recorded_outside_the_learner(fake: FakePipeline, name: str, work: Callable[[Tensor], Any]) -> None:
    text = refusal(fake, name, lambda: work(fake.weights))
    assert text.startswith(f"operation {name} made a result of ") and "that requires grad" in text
    assert "only the learner computes gradients" in text
    fake.run("minibatch", lambda: work(fake.weights))

    def quietly() -> None:
        with torch.no_grad():
            work(fake.weights)

    fake.run(name, quietly)


def test_a_backward_pass_outside_the_learner(fake: FakePipeline) -> None:
    loss = (fake.weights * 3.0).sum()
    assert "operation step ran backward" in refusal(fake, "step", lambda: loss.backward())
    assert "operation act ran" in refusal(fake, "act", lambda: torch.autograd.grad(loss, fake.weights))
    assert fake.weights.grad is None
    fake.run("minibatch", lambda: loss.backward())


def test_an_operation_without_a_contract_is_refused(fake: FakePipeline) -> None:
    with pytest.raises(ContractError, match="operation gossip: it has no contract"):
        fake.guard.wrap({"act": lambda: None, "gossip": lambda: None})


def test_operations_of_other_streams_wait_so_that_their_writes_are_not_misjudged(fake: FakePipeline) -> None:
    handlers: Dict[str, Callable[..., Any]] = {}
    thread = threading.Thread(target=lambda: handlers["step"]())

    def act() -> None:
        thread.start()
        thread.join(0.2)  # long enough to write rewards while this runs, if it could

    handlers.update(fake.guard.wrap({"act": act, "step": lambda: fake.slabs[0]["rewards"].add_(1.0)}))
    handlers["act"]()
    thread.join()
    assert fake.guard.calls == {"act": 1, "step": 1}


# ------------------------------------------------------------------------------------------------------ real pipelines


def close(pipeline: Pipeline) -> None:
    for worker in pipeline.workers:
        worker.env.close()


@pytest.mark.parametrize("executor", ["inline", "threads"])
@pytest.mark.parametrize(
    "schedule",
    [
        {"lag": 0},
        {"lag": 2, "num_workers": 2},
        {"free": {"max_policy_lag": 1}, "num_workers": 2},
        {"free": {"lead": 40, "throttle": False}, "on_excess": "mask"},
    ],
)
def test_a_running_pipeline_keeps_the_contract(executor: str, schedule: Dict[str, Any]) -> None:
    pipeline = cartpole_pipeline(executor=executor, num_updates=5, **schedule)
    guard = PipelineGuard.install(pipeline)
    pipeline.run()
    workers = schedule.get("num_workers", 1)
    assert guard.calls["act"] == guard.calls["step"] == 6 * 8 * workers
    assert guard.calls["minibatch"] == 5 * 8
    close(pipeline)


def test_the_guard_changes_nothing() -> None:
    guarded, plain = cartpole_pipeline(num_updates=3), cartpole_pipeline(num_updates=3)
    PipelineGuard.install(guarded)
    guarded.run()
    plain.run()
    assert torch.equal(weights(guarded), weights(plain))
    close(guarded)
    close(plain)


def _plant(pipeline: Pipeline, method: str, extra: Callable[..., Any]) -> None:
    collector = pipeline.workers[0].collector
    original = getattr(collector, method)

    def planted(*args: int) -> None:
        original(*args)
        extra(*args)

    setattr(collector, method, planted)


@pytest.mark.parametrize("executor", ["inline", "threads"])
def test_a_violation_planted_in_a_running_pipeline_ends_it(executor: str) -> None:
    pipeline = cartpole_pipeline(executor=executor, num_updates=3)
    slabs = pipeline.workers[0].slabs
    _plant(pipeline, "act", lambda slab, t: slabs[slab % len(slabs)].rewards_TN[t].mul_(0.1).add_(1e-3))
    PipelineGuard.install(pipeline)
    with pytest.raises(ContractError, match=r"operation act\(0, -1, 0\) wrote slab.rewards"):
        pipeline.run()
    close(pipeline)


def test_a_forward_pass_with_gradients_planted_in_a_running_pipeline_ends_it() -> None:
    pipeline = cartpole_pipeline(num_updates=3)
    model = pipeline.learner.model
    _plant(pipeline, "step", lambda slab, t: model(torch.zeros(1, model.num_obs)))
    PipelineGuard.install(pipeline)
    with pytest.raises(ContractError, match=r"operation step made a result of .* that requires grad"):
        pipeline.run()
    close(pipeline)
