"""The torch twins against the kernels that they stand for."""

from __future__ import annotations

from typing import Any, List

import pytest
import torch
from torch import Tensor

from isaac_appo.bench import twins
from isaac_appo.kernels import launch, wp
from isaac_appo.learn.target_kernels import targets_kernel
from isaac_appo.policy.sampling import sample_kernel
from isaac_appo.rollout.collector import record_kernel

KERNELS = {kernel.func.__name__: kernel for kernel in (sample_kernel, record_kernel, targets_kernel)}


def both(name: str, dim: int, inputs: List[Any], outputs: List[Tensor]) -> None:
    """Run the kernel and its twin on copies of the same memory, and compare all of it afterwards."""
    copies = [[x.clone() if isinstance(x, Tensor) else x for x in (*inputs, *outputs)] for _ in range(2)]
    split = len(inputs)
    arrays = [wp.from_torch(x) if isinstance(x, Tensor) else x for x in copies[0]]
    launch(KERNELS[name], dim, arrays[:split], arrays[split:])
    twins.TWINS[name](*copies[1])
    for number, (kernel, twin) in enumerate(zip(*copies)):
        torch.testing.assert_close(
            twin, kernel, rtol=2e-6, atol=2e-6, equal_nan=True, msg=lambda text, n=number: f"{n}: {text}"
        )


def test_there_is_one_for_each_kernel_of_a_pipeline() -> None:
    assert twins.TWINS.keys() == KERNELS.keys()


@pytest.mark.parametrize("num_actions", [1, 4, 6])
def test_sampling(num_actions: int) -> None:
    generator = torch.Generator().manual_seed(num_actions)
    mu, log_std = (torch.randn(50, num_actions, generator=generator) for _ in range(2))
    outputs = [torch.full((50, num_actions), torch.nan) for _ in range(3)] + [torch.full((50,), torch.nan)]
    for step in (0, 7 + 3 * 2**32):
        both("sample_kernel", 50, [5 + 2**40, torch.tensor([step]), 11, 1.0, mu, log_std], outputs)
    first, second = outputs[0].clone(), outputs[0].clone()
    for seed, action in ((1, first), (2, second)):
        twins.sample(seed, torch.tensor([0]), 0, 1.0, mu, log_std, action, *outputs[1:])
    assert not torch.equal(first, second)


@pytest.mark.parametrize("after_done", [0, 1, 2])
def test_records(after_done: int) -> None:
    generator = torch.Generator().manual_seed(after_done)
    flags = torch.rand(4, 200, generator=generator) < 0.3
    reward, running = torch.randn(2, 200, generator=generator)
    length = torch.randint(0, 50, (200,), generator=generator, dtype=torch.int32)
    row = [torch.full((200,), torch.nan), *torch.zeros(2, 200, dtype=torch.bool)]
    row += [torch.full((200,), 9, dtype=torch.uint8), torch.full((200,), torch.nan), length + 99]
    reward[flags[2]] = torch.nan  # what broke
    both("record_kernel", 200, [reward, *flags[:3], after_done], [flags[3], running, length, *row])


@pytest.mark.parametrize("bootstrap_truncated", [True, False])
def test_targets(bootstrap_truncated: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    rewards, w = torch.randn(2, 16, 40, generator=generator)
    values, final = torch.randn(17, 40, generator=generator), torch.randn(16, 40, generator=generator)
    ends = torch.rand(2, 16, 40, generator=generator) < 0.1
    status = (2 * (torch.rand(16, 40, generator=generator) < 0.1)).to(torch.uint8)
    scalars = [0.99, 0.95, 1.5, 1.2, bootstrap_truncated, 0.1, 0.5, -0.1, 0.1]
    outputs = list(torch.full((2, 16, 40), torch.nan))
    rewards[3, 3], final[5, 5], status[3, 3] = torch.nan, torch.inf, 2
    both("targets_kernel", 40, [*scalars, rewards, values, final, *ends, status, w.exp()], outputs)
