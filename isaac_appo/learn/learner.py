"""The learner: what the learner stream does with a slab, one operation per method, in the order of the program."""

from __future__ import annotations

import math
from typing import Any, Dict, List, NamedTuple, Sequence

import torch
from torch import Tensor

from isaac_appo.learn.batch import Batch
from isaac_appo.learn.learning_rate import LearningRate, LearningRateSettings
from isaac_appo.learn.loss import LossSettings, Minibatch, gaussian_kl, masked_mean, ppo_loss
from isaac_appo.learn.optimizer import FlatAdam
from isaac_appo.learn.target_kernels import RewardShaper, TargetLaunch, pack_params
from isaac_appo.learn.targets import TargetSettings
from isaac_appo.policy.actor_critic import ActorCritic
from isaac_appo.policy.sampling import neglogp
from isaac_appo.policy.snapshot import PolicyBuffer
from isaac_appo.rollout.slab import LIVE, Slab

METRIC_NAMES = (
    "losses/a_loss",
    "losses/c_loss",
    "losses/entropy",
    "losses/bounds_loss",
    "loss/clip_fraction",
    "info/kl",
    "loss/grad_norm",
)
"""Means over the minibatches of an update, in the order in which they are accumulated."""


class LearnerSettings(NamedTuple):
    """What the learner needs to know, already validated."""

    epochs: int
    minibatch_size: int
    minibatches: int
    loss: LossSettings
    targets: TargetSettings
    shaper: RewardShaper
    learning_rate: LearningRateSettings
    bootstrap_truncated: bool
    normalize_advantage: bool
    behaviour_anchor: bool
    w_max: float
    max_grad_norm: float
    weight_decay: float
    shuffle: bool
    seed: int


class Learner:
    """Owns the weights that are trained, their optimizer, and the statistics' accumulators.

    Args:
        model: the actor-critic whose parameters live in ``policy``.
        policy: the learner's byte buffer; publishing copies it.
        slabs: the ring of slabs that the policy stream fills.
    """

    def __init__(
        self, model: ActorCritic, policy: PolicyBuffer, slabs: Sequence[Slab], settings: LearnerSettings
    ) -> None:
        self.model, self.policy, self.slabs, self.settings = model, policy, slabs, settings
        horizon, num_envs, num_obs = slabs[0].obs_TNO[:-1].shape
        device = slabs[0].obs_TNO.device
        s = settings
        self.batch = Batch(
            horizon, num_envs, num_obs, slabs[0].actions_TNA.shape[-1], s.minibatch_size, s.minibatches, device
        )
        self.learning_rate = LearningRate(s.learning_rate, device)
        parameters = list(model.parameters())
        self.optimizer = FlatAdam(
            policy.parameters, parameters, self.learning_rate.value, s.weight_decay, s.max_grad_norm
        )
        self._minibatches: List[Minibatch] = self.batch.minibatches(s.behaviour_anchor)
        self._prox_values_TN = torch.zeros_like(slabs[0].values_TN)
        self._log_w_TN = torch.zeros_like(slabs[0].rewards_TN)
        self._outputs = (torch.zeros_like(slabs[0].rewards_TN), torch.zeros_like(slabs[0].rewards_TN))
        params = pack_params(s.targets, s.shaper, s.bootstrap_truncated)
        fresh_params = pack_params(s.targets._replace(use_vtrace=False), s.shaper, s.bootstrap_truncated)
        self._fresh_targets = [
            TargetLaunch(slab, slab.values_TN, self._log_w_TN, self._outputs, fresh_params) for slab in slabs
        ]
        self._stale_targets = [
            TargetLaunch(slab, self._prox_values_TN, self._log_w_TN, self._outputs, params) for slab in slabs
        ]
        self._sums = torch.zeros(len(METRIC_NAMES), device=device)
        self._last_epoch_kl = torch.zeros(2, device=device)
        self._explained_variance = torch.zeros((), device=device)
        self._stale = False

    def slab(self, index: int) -> Slab:
        """The slab of a rollout index."""
        return self.slabs[index % len(self.slabs)]

    @torch.no_grad()
    def calibrate(self, index: int) -> None:
        """Take observation statistics from a slab that nothing else is learnt from."""
        self._update_observation_statistics(self.slab(index))
        self.model.publish_statistics()

    @torch.no_grad()
    def load(self, index: int, stale: bool) -> None:
        """Lay the slab out as a batch. ``stale``: some row was collected with an older version than the current."""
        self._stale = stale
        self.batch.load(self.slab(index))
        normalizer = self.model.running_mean_std
        normalizer.normalize(self.batch.obs, self.batch.obs)
        normalizer.normalize(self.batch.boot_obs, self.batch.boot_obs)
        self._sums.zero_()
        self._last_epoch_kl.zero_()
        self.optimizer.skipped.zero_()

    @torch.no_grad()
    def proximal(self) -> None:
        """Fix the proximal policy: at lag 0 it *is* the behaviour policy, else one forward over all ``T + 1`` rows."""
        b = self.batch
        if self._stale:
            self._proximal_forward()
            log_w = b.behaviour_neglogp - b.prox_neglogp
            self._log_w_TN.copy_(b.time_major(log_w))
            b.weight.copy_(log_w.clamp_(max=math.log(self.settings.w_max)).exp_())
        else:
            b.prox_mu.copy_(b.behaviour_mu)
            b.prox_sigma.copy_(b.behaviour_sigma)
            b.prox_neglogp.copy_(b.behaviour_neglogp)
        if not self._stale or self.settings.behaviour_anchor:
            b.weight.fill_(1.0)
        b.rolling_mu.copy_(b.prox_mu)
        b.rolling_sigma.copy_(b.prox_sigma)

    def _proximal_forward(self) -> None:
        b, denormalize = self.batch, self.model.value_mean_std.denormalize
        for i in range(b.count):  # in minibatches: the activations of a whole slab would not fit the cache
            part = slice(i * b.size, (i + 1) * b.size)
            output = self.model(b.obs[part])
            b.prox_mu[part] = output.mu
            b.prox_sigma[part] = output.log_std.exp()
            b.prox_neglogp[part] = neglogp(b.actions[part], output.mu, output.log_std)
            denormalize(output.value, b.values[part])
        self._prox_values_TN[:-1].copy_(b.time_major(b.values))
        denormalize(self.model(b.boot_obs).value, self._prox_values_TN[-1])

    @torch.no_grad()
    def targets(self, index: int) -> None:
        """Value targets and advantages; then value statistics, before the loss, as rl_games has it."""
        slot = index % len(self.slabs)
        (self._stale_targets if self._stale else self._fresh_targets)[slot]()
        vs_TN, advantages_TN = self._outputs
        values_TN = self._prox_values_TN if self._stale else self.slabs[slot].values_TN
        b = self.batch
        b.time_major(b.returns).copy_(vs_TN)
        b.time_major(b.values).copy_(values_TN[:-1])
        b.time_major(b.advantages).copy_(advantages_TN)
        self._explained_variance.copy_(self._explained(b.values, b.returns, b.mask))
        normalizer = self.model.value_mean_std
        for values in (b.values, b.returns):
            normalizer.update(values.unsqueeze(-1), b.mask)
        normalizer.publish()
        for values in (b.values, b.returns):
            normalizer.normalize(values, values)
        if self.settings.normalize_advantage:
            self._standardize(b.advantages, b.mask)

    @staticmethod
    def _standardize(x: Tensor, mask: Tensor) -> None:
        rows = mask.sum()
        x.mul_(mask).sub_(x.sum() / rows.clamp(min=1.0)).mul_(mask)
        deviation = (x.square().sum() / (rows - 1.0).clamp(min=1.0)).sqrt()
        x.div_(deviation + 1e-8)

    @staticmethod
    def _explained(values: Tensor, returns: Tensor, mask: Tensor) -> Tensor:
        rows = mask.sum().clamp(min=1.0)

        def variance(x: Tensor) -> Tensor:
            mean = (x * mask).sum() / rows
            return ((x - mean).square() * mask).sum() / rows

        return 1.0 - variance(returns - values) / variance(returns).clamp(min=1e-12)

    def minibatch(self, update: int, epoch: int, index: int) -> None:
        """One SGD step: forward, loss, backward, clip, Adam, learning rate, metrics."""
        if self.settings.shuffle and index == 0:
            self.batch.shuffle((self.settings.seed * 1_000_003 + update) * 1_009 + epoch)
        batch = self._minibatches[index]
        self.optimizer.zero_grad()
        output = self.model(batch.obs_MO)
        terms = ppo_loss(output, batch, self.settings.loss)
        terms.total.backward()
        with torch.no_grad():
            norm = self.optimizer.step(batch.mask_M.sum())
            self.learning_rate.after_minibatch(terms.kl_rolling)
            if index == self.batch.count - 1:
                self.learning_rate.after_epoch()
            parts = (
                terms.actor,
                terms.critic,
                terms.entropy,
                terms.bounds,
                terms.clip_fraction,
                terms.kl_rolling,
                norm,
            )
            self._sums += torch.stack([x.detach() for x in parts])
            if epoch == self.settings.epochs - 1:
                self._measure_drift(output.mu, output.log_std.exp(), batch, terms.rows)

    def _measure_drift(self, mu: Tensor, sigma: Tensor, batch: Minibatch, rows: Tensor) -> None:
        from_prox = gaussian_kl(batch.prox_mu_MA, batch.prox_sigma_MA, mu, sigma)
        from_behaviour = gaussian_kl(batch.behaviour_mu_MA, batch.behaviour_sigma_MA, mu, sigma)
        drift = [masked_mean(kl, batch.mask_M, rows) for kl in (from_prox, from_behaviour)]
        self._last_epoch_kl += torch.stack(drift) / self.batch.count

    @torch.no_grad()
    def finish(self, index: int) -> None:
        """After the last minibatch: observation statistics and the schedule, ready to be published."""
        self._update_observation_statistics(self.slab(index))
        self.model.publish_statistics()
        self.learning_rate.after_update(index + 1)

    def _update_observation_statistics(self, slab: Slab) -> None:
        obs = slab.obs_TNO[: slab.horizon].flatten(0, 1)
        self.model.running_mean_std.update(obs, (slab.status_TN == LIVE).flatten().float())

    def metrics(self) -> Dict[str, float]:
        """Host numbers of the update just finished: the one place where the learner waits for its device."""
        steps = self.settings.epochs * self.batch.count
        scalars = [self.learning_rate.value, self.optimizer.skipped, self._explained_variance]
        sigma = self.batch.rolling_sigma[: self.batch.rows].mean()
        clipped = (self.batch.actions[: self.batch.rows].abs() > 1.0).float().mean()
        packed = torch.cat([self._sums / steps, self._last_epoch_kl, torch.stack([*scalars, sigma, clipped])]).tolist()
        names = [*METRIC_NAMES, "kl/prox", "kl/behaviour", "info/last_lr", "loss/skipped_steps"]
        names += ["loss/explained_variance", "policy/std", "policy/action_clip_fraction"]
        return dict(zip(names, packed))

    def state_dict(self) -> Dict[str, Any]:
        """Weights and statistics under rl_games' keys, optimizer state per parameter, and the learning rate."""
        model = {name: tensor.clone() for name, tensor in self.model.state_dict().items()}
        return {
            "model": model,
            "optimizer": self.optimizer.state_dict(),
            "learning_rate": float(self.learning_rate.value),
        }

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore in place; missing or unexpected keys are errors."""
        self.model.load_state_dict(state["model"], strict=True)
        self.model.publish_statistics()
        self.optimizer.load_state_dict(state["optimizer"])
        self.learning_rate.value.fill_(state["learning_rate"])
