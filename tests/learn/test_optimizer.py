"""Flat Adam against torch's Adam and clipping, the guard, and the rl_games layout of its state."""

from __future__ import annotations

from typing import List, Tuple

import pytest
import torch
from torch import Tensor, nn

from isaac_appo.learn.optimizer import FlatAdam


def make(max_grad_norm: float = 1.0) -> Tuple[FlatAdam, List[nn.Parameter], Tensor]:
    flat = torch.linspace(-1, 1, 10)
    parameters = [nn.Parameter(flat[:6].view(2, 3)), nn.Parameter(flat[6:])]
    return FlatAdam(flat, parameters, torch.tensor(1e-2), 0.0, max_grad_norm), parameters, flat


def gradient(step: int) -> Tensor:
    return torch.randn(10, generator=torch.Generator().manual_seed(step)) * (10.0 if step % 2 else 0.1)


@pytest.mark.parametrize("max_grad_norm", [0.0, 1.0])
def test_equals_adam_with_clip_grad_norm(max_grad_norm: float) -> None:
    ours, _, flat = make(max_grad_norm)
    reference = nn.Parameter(flat.clone())
    adam = torch.optim.Adam([reference], lr=1e-2, eps=1e-8)
    for step in range(6):
        ours.zero_grad()
        ours.grad += gradient(step)
        norm = ours.step(torch.tensor(5.0))
        assert float(norm) == pytest.approx(float(gradient(step).norm()))
        reference.grad = gradient(step)
        if max_grad_norm:
            nn.utils.clip_grad_norm_([reference], max_grad_norm)
        adam.step()
    assert torch.allclose(flat, reference, atol=1e-6)


def test_gradients_of_the_parameters_land_in_the_flat_buffer_for_ever() -> None:
    ours, parameters, _ = make()
    for _ in range(3):
        ours.zero_grad()
        (parameters[0].sum() * 2 + parameters[1].sum() * 3).backward()
        assert ours.grad.tolist() == [2.0] * 6 + [3.0] * 4


@pytest.mark.parametrize(("bad", "rows"), [(float("nan"), 5.0), (float("inf"), 5.0), (1.0, 0.0)])
def test_a_bad_step_is_skipped_and_counted(bad: float, rows: float) -> None:
    ours, _, flat = make()
    ours.grad += gradient(1)
    ours.step(torch.tensor(5.0))
    before, moments = flat.clone(), ours.state_dict()
    ours.zero_grad()
    ours.grad[3] = bad
    ours.step(torch.tensor(rows))
    assert torch.equal(flat, before) and float(ours.skipped) == 1.0
    after = ours.state_dict()
    assert all(torch.equal(after["state"][i][k], moments["state"][i][k]) for i in (0, 1) for k in moments["state"][i])


def test_state_is_per_parameter_and_round_trips() -> None:
    ours, parameters, flat = make()
    for step in range(3):
        ours.zero_grad()
        ours.grad += gradient(step)
        ours.step(torch.tensor(5.0))
    state = ours.state_dict()
    torch.optim.Adam(parameters, lr=1e-2, eps=1e-8).load_state_dict(state)  # torch accepts it as its own
    assert [state["state"][i]["exp_avg"].shape for i in (0, 1)] == [torch.Size([2, 3]), torch.Size([4])]
    other, _, other_flat = make()
    other_flat.copy_(flat)
    other.load_state_dict(state)
    for optimizer in (ours, other):
        optimizer.zero_grad()
        optimizer.grad += gradient(7)
        optimizer.step(torch.tensor(5.0))
    assert torch.equal(flat, other_flat)
