"""Targets against hand-computed rows, identities, and the kernel against the float64 reference."""

from __future__ import annotations

import math
from typing import Any, Dict, List, Optional, Tuple

import pytest
import torch
from torch import Tensor

from isaac_appo.learn.target_kernels import RewardShaper, TargetLaunch
from isaac_appo.learn.targets import TargetSettings, reference_targets
from isaac_appo.rollout.slab import DEAD, LIVE, NAN, Slab


class Case:
    """One env; ``gamma = 0.9`` throughout."""

    def __init__(self, expected: Dict[str, List[float]], **given: Any) -> None:
        self.expected = expected
        self.rewards: List[float] = given.get("rewards", [1.0, 0.0, 2.0])
        self.values: List[float] = given.get("values", [0.5, 1.0, -0.5, 2.0])
        horizon = len(self.rewards)
        self.terminated: List[int] = given.get("terminated", [])
        self.truncated: List[int] = given.get("truncated", [])
        self.dead: List[int] = given.get("dead", [])
        self.w: List[float] = given.get("w", [1.0] * horizon)
        vtrace = "w" in given
        self.settings = TargetSettings(0.9, given.get("lam", 0.8), vtrace, given.get("rho", 1.0), given.get("c", 1.0))
        self.final: Optional[Dict[int, float]] = given.get("final")

    def flags(self, rows: List[int]) -> Tensor:
        mask = torch.zeros(len(self.rewards), 1, dtype=torch.bool)
        mask[rows] = True
        return mask


GAE = [2.58512, 1.646, 4.3]
W = [2.0, 0.5, 1.5]
CASES = {
    "lambda 0.8": Case({"A": GAE, "vs": [3.08512, 2.646, 3.8]}),
    "lambda 1 is n-step": Case({"A": [3.578, 2.42, 4.3]}, lam=1.0),
    "lambda 0 is one-step": Case({"A": [1.4, -1.45, 4.3]}, lam=0.0),
    "terminated": Case({"A": [0.68, -1.0, 4.3]}, terminated=[1]),
    "dead row after a time-out": Case(
        {"A": [2.624, 1.7, 0.0, 4.3], "vs": [3.124, 2.7, 3.0, 3.8]},
        rewards=[1.0, 0.0, 0.0, 2.0], values=[0.5, 1.0, 3.0, -0.5, 2.0], truncated=[1], dead=[2],
    ),
    "dead row after a terminal state": Case(
        {"A": [0.68, -1.0, 0.0, 4.3]},
        rewards=[1.0, 0.0, 0.0, 2.0], values=[0.5, 1.0, 3.0, -0.5, 2.0], terminated=[1], dead=[2],
    ),
    "a terminal last row does not bootstrap": Case({"A": [-0.7, 1.0]}, rewards=[1.0, 1.0], values=[1.7, 0.0, 100.0],
                                                   terminated=[1], lam=0.0),
    "terminated wins over truncated": Case({"A": [0.68, -1.0, 4.3]}, terminated=[1], truncated=[1]),
    "slab edge": Case({"A": [11.0 - 4.0]}, rewards=[2.0], values=[4.0, 10.0], lam=0.5),
    "v-trace, lambda 1": Case({"vs": [2.989, 2.21, 3.8], "A": [2.489, 1.21, 4.3]}, w=W, lam=1.0),
    "v-trace, lambda 0.8": Case({"vs": [2.49256, 1.823, 3.8], "A": [1.99256, 0.823, 4.3]}, w=W),
    "v-trace, rho 3": Case({"vs": [5.25975, 3.1775, 5.95]}, w=W, lam=1.0, rho=3.0),
}  # fmt: skip
PG = {"v-trace, lambda 1": [1.0, 0.5, 1.0], "v-trace, lambda 0.8": [1.0, 0.5, 1.0]}
"""The published advantages of these cases carry rho; ours do not, so that the expectation is divided by it."""


def by_reference(case: Case) -> Tuple[Tensor, Tensor]:
    live = ~case.flags(case.dead)
    return reference_targets(
        torch.tensor(case.rewards)[:, None], torch.tensor(case.values)[:, None], case.flags(case.terminated),
        case.flags(case.truncated), live, case.settings, torch.tensor(case.w, dtype=torch.float64)[:, None],
    )  # fmt: skip


def by_kernel(case: Case) -> Tuple[Tensor, Tensor]:
    slab = Slab(len(case.rewards), 1, 1, 1, torch.device("cpu"))
    slab.rewards_TN.copy_(torch.tensor(case.rewards)[:, None])
    slab.values_TN.copy_(torch.tensor(case.values)[:, None])
    slab.terminated_TN.copy_(case.flags(case.terminated))
    slab.truncated_TN.copy_(case.flags(case.truncated))
    slab.status_TN.copy_(torch.where(case.flags(case.dead), DEAD, LIVE))
    return launch(slab, case.settings, torch.tensor(case.w).log()[:, None])


def launch(slab: Slab, settings: TargetSettings, log_w: Tensor, **options: Any) -> Tuple[Tensor, Tensor]:
    outputs = (torch.full_like(slab.rewards_TN, torch.nan), torch.full_like(slab.rewards_TN, torch.nan))
    shaper, bootstrap = options.get("shaper", RewardShaper()), options.get("bootstrap", True)
    TargetLaunch(slab, slab.values_TN, log_w.exp(), outputs, settings, shaper, bootstrap)()
    return outputs


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("compute", [by_reference, by_kernel])
def test_hand_computed_rows(name: str, compute: Any) -> None:
    case = CASES[name]
    vs, advantages = compute(case)
    if "vs" in case.expected:
        assert vs[:, 0].tolist() == pytest.approx(case.expected["vs"], abs=2e-6)
    if "A" in case.expected:
        carried = torch.tensor(PG.get(name, [1.0] * len(case.rewards)), dtype=torch.float64)
        assert (advantages[:, 0].double() * carried).tolist() == pytest.approx(case.expected["A"], abs=2e-6)


def test_final_values_are_used_at_truncations_only() -> None:
    zeros = torch.zeros(3, 1, dtype=torch.bool)
    truncated = zeros.clone()
    truncated[1] = True
    final = torch.tensor([[99.0], [3.0], [99.0]])
    arguments = (torch.tensor([[1.0], [0.0], [2.0]]), torch.tensor([[0.5], [1.0], [-0.5], [2.0]]), zeros, truncated)
    _, advantages = reference_targets(*arguments, ~zeros, TargetSettings(0.9, 0.8), final_values_TN=final)
    assert advantages[:, 0].tolist() == pytest.approx([2.624, 1.7, 4.3])


@pytest.mark.parametrize("vtrace", [False, True])
@pytest.mark.parametrize("offered", [False, True])
def test_same_step_bootstraps_from_what_is_kept(offered: bool, vtrace: bool) -> None:
    """From the last observation's value where it is kept; else as rl_games, r + gamma * V(s_t)."""
    source, log_w = random_slab(16, 64, 17)
    slab = Slab(16, 64, 1, 1, torch.device("cpu"), autoreset="same_step")
    for name, tensor in source.tensors().items():
        getattr(slab, name).copy_(tensor)
    final = torch.randn(16, 64, generator=torch.Generator().manual_seed(3)) if offered else None
    settings = TargetSettings(0.99, 0.95, vtrace, 1.2, 0.9)
    outputs = (torch.zeros(16, 64), torch.zeros(16, 64))
    TargetLaunch(slab, slab.values_TN, log_w.exp(), outputs, settings, final_values_TN=final)()
    ends = (slab.rewards_TN, slab.values_TN, slab.terminated_TN, slab.truncated_TN, slab.status_TN == LIVE)
    reference = reference_targets(*ends, settings, log_w.exp(), slab.values_TN[:-1] if final is None else final)
    for kernel, expected in zip(outputs, reference):
        assert ((kernel.double() - expected).abs() <= 1e-5 * (1 + expected.abs())).all()
    assert not torch.allclose(outputs[0], launch(source, settings, log_w)[0])


def test_mixing_is_what_makes_v_trace_gae_on_policy() -> None:
    on_policy = TargetSettings(0.9, 0.8, use_vtrace=True)
    case = CASES["lambda 0.8"]
    arguments = (torch.tensor(case.rewards)[:, None], torch.tensor(case.values)[:, None])
    zeros = torch.zeros(3, 1, dtype=torch.bool)
    vs, advantages = reference_targets(*arguments, zeros, zeros, ~zeros, on_policy, torch.ones(3, 1))
    assert advantages[:, 0].tolist() == pytest.approx(GAE)
    unmixed = arguments[0] + 0.9 * torch.cat([vs[1:], torch.tensor([[2.0]])]) - arguments[1][:3]
    assert unmixed[:, 0].tolist() == pytest.approx([2.8814, 2.42, 4.3])


def random_slab(horizon: int, num_envs: int, seed: int) -> Tuple[Slab, Tensor]:
    g = torch.Generator().manual_seed(seed)
    slab = Slab(horizon, num_envs, 1, 1, torch.device("cpu"))
    slab.rewards_TN.copy_(torch.randn(horizon, num_envs, generator=g))
    slab.values_TN.copy_(torch.randn(horizon + 1, num_envs, generator=g) * 3)
    chance = torch.rand(3, horizon, num_envs, generator=g)
    slab.terminated_TN.copy_(chance[0] < 0.05)
    slab.truncated_TN.copy_(chance[1] < 0.05)
    slab.status_TN.copy_(torch.where(chance[2] < 0.03, NAN, LIVE))
    slab.status_TN[1:][(slab.terminated_TN | slab.truncated_TN)[:-1]] = DEAD
    return slab, torch.randn(horizon, num_envs, generator=g) * 0.3


@pytest.mark.parametrize("num_envs", [1, 31, 4096])
@pytest.mark.parametrize("horizon", [1, 2, 7, 16, 64])
@pytest.mark.parametrize("vtrace", [False, True])
def test_kernel_agrees_with_float64(horizon: int, num_envs: int, vtrace: bool) -> None:
    slab, log_w = random_slab(horizon, num_envs, horizon * 100 + num_envs)
    settings = TargetSettings(0.99, 0.95, vtrace, 1.2, 0.9)
    live = slab.status_TN == LIVE
    arguments = (slab.rewards_TN, slab.values_TN, slab.terminated_TN, slab.truncated_TN, live, settings, log_w.exp())
    for kernel, reference in zip(launch(slab, settings, log_w), reference_targets(*arguments)):
        assert ((kernel.double() - reference).abs() <= 1e-5 * (1 + reference.abs())).all()


def test_an_env_does_not_depend_on_its_neighbours() -> None:
    slab, log_w = random_slab(16, 8, 5)
    settings = TargetSettings(0.99, 0.95, True)
    full = launch(slab, settings, log_w)
    order = torch.tensor([3, 1, 7, 0, 2, 4, 6, 5])
    shuffled = Slab(16, 8, 1, 1, torch.device("cpu"))
    for name, tensor in shuffled.tensors().items():
        tensor.copy_(getattr(slab, name)[:, order])
    for whole, permuted in zip(full, launch(shuffled, settings, log_w[:, order])):
        assert torch.equal(whole[:, order], permuted)


def test_a_slab_edge_cuts_the_trace() -> None:
    slab, log_w = random_slab(8, 4, 6)
    for flag in (slab.terminated_TN, slab.truncated_TN, slab.status_TN):
        flag.zero_()
    whole = launch(slab, TargetSettings(0.99, 0.95), log_w)[1]
    first = Slab(4, 4, 1, 1, torch.device("cpu"))
    first.rewards_TN.copy_(slab.rewards_TN[:4])
    first.values_TN.copy_(slab.values_TN[:5])
    assert not torch.allclose(launch(first, TargetSettings(0.99, 0.95), log_w[:4])[1], whole[:4])
    assert torch.allclose(
        launch(first, TargetSettings(0.99, 0.0), log_w[:4])[1], launch(slab, TargetSettings(0.99, 0.0), log_w)[1][:4]
    )


def test_value_bootstrap_false_treats_a_time_out_as_terminal() -> None:
    case = CASES["dead row after a time-out"]
    slab = Slab(4, 1, 1, 1, torch.device("cpu"))
    slab.rewards_TN.copy_(torch.tensor(case.rewards)[:, None])
    slab.values_TN.copy_(torch.tensor(case.values)[:, None])
    slab.truncated_TN[1], slab.status_TN[2] = True, DEAD
    advantages = launch(slab, case.settings, torch.zeros(4, 1), bootstrap=False)[1]
    assert advantages[:, 0].tolist() == pytest.approx([0.68, -1.0, 0.0, 4.3])


def test_reward_shaper_is_rl_games() -> None:
    slab = Slab(1, 4, 1, 1, torch.device("cpu"))
    slab.rewards_TN.copy_(torch.tensor([[1.0, 5.0, -5.0, 100.0]]))
    shaper = RewardShaper(scale=0.5, shift=1.0, low=-1.0, high=10.0)
    advantages = launch(slab, TargetSettings(0.9, 0.8), torch.zeros(1, 4), shaper=shaper)[1]
    assert advantages[0].tolist() == pytest.approx([1.0, 3.0, -1.0, 10.0])
    slab.rewards_TN.copy_(torch.tensor([[1.0, 5.0, 0.0, 1e9]]))
    advantages = launch(slab, TargetSettings(0.9, 0.8), torch.zeros(1, 4), shaper=shaper._replace(log=True))[1]
    assert advantages[0].tolist() == pytest.approx([0.0, math.log(3.0), math.log(0.5), 10.0])


R, V, MU, PI = [1.0, 0.0, -1.0, 2.0], [0.5, 0.6, 0.7, 0.8, 0.9], [-0.5, -1.0, -0.7, -0.2], [-0.2, -1.5, -0.4, -0.6]
"""An off-policy trajectory whose V-trace targets have been published, gamma 0.99, lambda 1."""


@pytest.mark.parametrize(
    ("rho_bar", "c_bar", "vs"),
    [(1.0, 1.0, [1.93496, 0.94440, 1.17962, 2.20164]), (0.5, 1.5, [1.86597, 1.21284, 1.64316, 1.84550])],
)
def test_published_v_trace_vectors(rho_bar: float, c_bar: float, vs: List[float]) -> None:
    slab = Slab(4, 1, 1, 1, torch.device("cpu"))
    slab.rewards_TN.copy_(torch.tensor(R)[:, None])
    slab.values_TN.copy_(torch.tensor(V)[:, None])
    log_w = torch.tensor(PI)[:, None] - torch.tensor(MU)[:, None]
    settings = TargetSettings(0.99, 1.0, True, rho_bar, c_bar)
    kernel_vs, kernel_a = launch(slab, settings, log_w)
    assert kernel_vs[:, 0].tolist() == pytest.approx(vs, abs=1e-5)
    if rho_bar == c_bar:
        rho = log_w.exp().clamp(max=rho_bar)
        assert (rho * kernel_a)[:, 0].tolist() == pytest.approx([1.43496, 0.34440, 0.47962, 1.40164], abs=1e-5)


@pytest.mark.parametrize("lam", [0.0, 0.5, 0.95, 1.0])
def test_v_trace_on_policy_is_gae_for_every_lambda(lam: float) -> None:
    slab, _ = random_slab(16, 64, 11)
    zeros = torch.zeros(16, 64)
    gae = launch(slab, TargetSettings(0.99, lam), zeros)
    for rho_bar, c_bar in ((1.0, 1.0), (3.0, 2.0)):
        vtrace = launch(slab, TargetSettings(0.99, lam, True, rho_bar, c_bar), zeros)
        assert torch.equal(gae[0], vtrace[0]) and torch.equal(gae[1], vtrace[1])
    live = slab.status_TN == LIVE
    assert torch.allclose(gae[0][live] - slab.values_TN[:-1][live], gae[1][live], atol=2e-5)


@pytest.mark.parametrize("lam", [0.5, 1.0])
def test_equal_caps_make_the_weighted_advantage_the_change_of_value(lam: float) -> None:
    slab, log_w = random_slab(16, 64, 12)
    live = slab.status_TN == LIVE
    for c_bar, equal in ((1.5, True), (0.7, False)):
        vs, advantages = launch(slab, TargetSettings(0.99, lam, True, 1.5, c_bar), log_w)
        gap = (log_w.exp().clamp(max=1.5) * advantages - (vs - slab.values_TN[:-1]))[live].abs().max()
        assert (float(gap) < 1e-4) is equal


def test_a_policy_that_would_never_act_so_learns_nothing_from_it() -> None:
    slab, _ = random_slab(16, 64, 13)
    vs, _ = launch(slab, TargetSettings(0.99, 0.95, True), torch.full((16, 64), -40.0))
    assert torch.allclose(vs, slab.values_TN[:-1], atol=1e-6)


def test_lambda_1_telescopes_to_the_return_minus_the_value() -> None:
    slab = Slab(3, 1, 1, 1, torch.device("cpu"))
    slab.rewards_TN.copy_(torch.tensor([[1.0], [2.0], [3.0]]))
    slab.values_TN.copy_(torch.tensor([[4.0], [5.0], [6.0], [7.0]]))
    advantages = launch(slab, TargetSettings(0.5, 1.0), torch.zeros(3, 1))[1]
    assert advantages[:, 0].tolist() == pytest.approx([1 + 1 + 0.75 + 0.875 - 4, 2 + 1.5 + 1.75 - 5, 3 + 3.5 - 6])


def test_a_truncation_inside_a_slab_does_not_leak_into_the_episode_before() -> None:
    slab = Slab(2, 1, 1, 1, torch.device("cpu"))
    slab.values_TN.copy_(torch.tensor([[1.0], [1.0], [100.0]]))  # row 1 is the dead row: the true last observation
    slab.truncated_TN[0], slab.status_TN[1] = True, DEAD
    assert launch(slab, TargetSettings(1.0, 1.0, True), torch.zeros(2, 1))[1][:, 0].tolist() == [0.0, 0.0]


def test_v_trace_fixed_points_on_a_chain() -> None:
    """Expected V-trace updates under a behaviour policy: their fixed point is the target policy's value where rho is
    not clipped, and that of the policy proportional to min(rho_bar * mu, pi) where it is (Espeholt et al. 2018)."""
    pi, mu, gamma = torch.tensor([0.8, 0.2]).double(), torch.tensor([0.4, 0.6]).double(), 0.9
    rewards = torch.tensor([1.0, -0.5]).double()  # one state, two actions: v = E[r] / (1 - gamma)
    for rho_bar in (10.0, 1.0):
        w = (pi / mu).clamp(max=rho_bar)
        implied = mu * w / (mu * w).sum()
        expected = float((implied * rewards).sum() / (1 - gamma))
        value = 0.0
        for _ in range(400):
            updates = []
            for action in (0, 1):
                slab = Slab(1, 1, 1, 1, torch.device("cpu"))
                slab.rewards_TN.fill_(float(rewards[action]))
                slab.values_TN.fill_(value)
                settings = TargetSettings(gamma, 1.0, True, rho_bar, 1.0)
                vs, _ = launch(slab, settings, torch.full((1, 1), float((pi[action] / mu[action]).log())))
                updates.append(float(vs[0, 0]) - value)
            value += float(mu[0]) * updates[0] + float(mu[1]) * updates[1]
        assert value == pytest.approx(expected, rel=1e-4)
