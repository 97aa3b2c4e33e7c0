"""The learner: what the learner stream does with a slab, one operation per method, in the order of the program."""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple

import torch
from torch import Tensor

from isaac_appo.learn.batch import Batch
from isaac_appo.learn.critic import CriticSettings, CriticTrainer
from isaac_appo.learn.learning_rate import LearningRate, LearningRateSettings
from isaac_appo.learn.loss import LossSettings, Minibatch, gaussian_kl, masked_mean, ppo_loss
from isaac_appo.learn.optimizer import FlatAdam
from isaac_appo.learn.target_kernels import RewardShaper, TargetLaunch
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
    critic: Optional[CriticSettings] = None


class Learner:
    """Owns the weights that are trained, their optimizer, and the statistics' accumulators.

    Args:
        model: the actor-critic whose parameters live in ``policy``.
        policy: the learner's byte buffer; publishing copies it.
        slabs: the rings of slabs that the workers fill: ``slabs[worker][slot]``.

    Attributes:
        version: updates that have changed the weights; -1 before calibration.
        live: bool scalar on the device, whether a row of the batch is trained on.
    """

    def __init__(
        self, model: ActorCritic, policy: PolicyBuffer, slabs: Sequence[Sequence[Slab]], settings: LearnerSettings
    ) -> None:
        self.model, self.policy, self.slabs, self.settings = model, policy, slabs, settings
        self.version = -1
        s, first = settings, slabs[0][0]
        device = first.obs_TNO.device
        num_envs = sum(ring[0].num_envs for ring in slabs)
        num_obs, num_actions = first.obs_TNO.shape[-1], first.actions_TNA.shape[-1]
        num_states = 0 if first.states_TNS is None else first.states_TNS.shape[-1]
        sizes = (num_obs, num_actions, s.minibatch_size, s.minibatches)
        self.batch = Batch(first.horizon, num_envs, *sizes, device, num_states)
        self.learning_rate = LearningRate(s.learning_rate, device)
        parameters = list(model.a2c_network.parameters())
        split = sum(parameter.numel() for parameter in parameters)
        self.optimizer = FlatAdam(
            policy.parameters[:split], parameters, self.learning_rate.value, s.weight_decay, s.max_grad_norm
        )
        self.critic: Optional[CriticTrainer] = None
        if model.central_value is not None and s.critic is not None:
            self.critic = CriticTrainer(model.central_value, policy.parameters[split:], s.critic)
        self._scalars = s.loss.scalars(device)
        self._minibatches: List[Minibatch] = self.batch.minibatches(s.behaviour_anchor)
        self._values_TN = torch.zeros(first.horizon + 1, num_envs, device=device)
        self._w_TN, self._vs_TN, self._advantages_TN = torch.zeros(3, first.horizon, num_envs, device=device)
        keeps_final = first.final_TNX is not None
        self._final: Optional[Tensor] = torch.zeros_like(self._w_TN) if keeps_final else None
        self._targets = self._bind_targets()
        self._sums = torch.zeros(len(METRIC_NAMES), device=device)
        self._last_epoch_kl = torch.zeros(2, device=device)
        self._explained_variance = torch.zeros((), device=device)
        self.live = torch.zeros((), dtype=torch.bool, device=device)
        self._rate_before = torch.zeros((), device=device)
        self._orders, self._staged_orders = self._order_buffers(device)
        self._drift_share = torch.zeros((), device=device)
        self._stale = self._empty = False

    def _order_buffers(self, device: torch.device) -> Tuple[Tensor, Tensor]:
        """Row orders of an update ``[E, R]``, and where the host draws them: more updates than it ever runs ahead."""
        if not self.settings.shuffle:
            return torch.zeros(0, dtype=torch.int64), torch.zeros(0, dtype=torch.int64)
        shape = (self.settings.epochs, len(self.batch.mask))
        staged = torch.zeros((4, *shape), dtype=torch.int64, pin_memory=device.type == "cuda")
        return torch.zeros(shape, dtype=torch.int64, device=device), staged

    def _bind_targets(self) -> List[List[TargetLaunch]]:
        """One kernel launch per worker and slot, on that worker's columns of the outputs."""
        s = self.settings
        launches: List[List[TargetLaunch]] = []
        first = 0
        for ring in self.slabs:
            envs = slice(first, first + ring[0].num_envs)
            first = envs.stop
            outputs = (self._vs_TN[:, envs], self._advantages_TN[:, envs])
            values, w = self._values_TN[:, envs], self._w_TN[:, envs]
            settings = (s.targets, s.shaper, s.bootstrap_truncated)
            final = None if self._final is None else self._final[:, envs]
            launches.append([TargetLaunch(slab, values, w, outputs, *settings, final) for slab in ring])
        return launches

    def slabs_of(self, index: int) -> List[Slab]:
        """The slab of each worker for a rollout index."""
        return [ring[index % len(ring)] for ring in self.slabs]

    @torch.no_grad()
    def calibrate(self, index: int) -> None:
        """Take observation statistics from slabs that nothing else is learnt from; what is published is version 0."""
        self._update_observation_statistics(index)
        self._set_version(0)

    @torch.no_grad()
    def load(self, index: int, lag: int, empty: bool = False) -> None:
        """Lay the slabs out as a batch.

        ``lag``: of the oldest row, in updates. ``empty``: no row is to be trained on, so that the operations up to
        :meth:`finish` do nothing and no version is made.
        """
        self._stale, self._empty = lag > 0, empty
        self._drift_share.fill_(1.0 / (lag + 1) ** 2 if lag else 0.0)
        self._sums.zero_()
        self._last_epoch_kl.zero_()
        self.optimizer.skipped.zero_()
        self._rate_before.copy_(self.learning_rate.value)
        self.live.fill_(False)
        if empty:
            return
        if self.settings.shuffle:
            self._draw_orders(index)
        self.batch.load(self.slabs_of(index))
        self.live.copy_(self.batch.mask.sum() > 0)
        normalizer = self.model.running_mean_std
        normalizer.normalize(self.batch.obs, self.batch.obs)
        normalizer.normalize(self.batch.boot_obs, self.batch.boot_obs)
        if self.critic is not None and self.batch.states is not None:
            self.critic.loss.zero_()
            self.critic.critic.running_mean_std.normalize(self.batch.states, self.batch.states)

    def _draw_orders(self, update: int) -> None:
        staged = self._staged_orders[update % len(self._staged_orders)]
        for epoch, order in enumerate(staged):
            generator = torch.Generator().manual_seed((self.settings.seed * 1_000_003 + update) * 1_009 + epoch)
            torch.randperm(len(order), generator=generator, out=order)
        self._orders.copy_(staged, non_blocking=True)

    @torch.no_grad()
    def proximal(self, index: int) -> None:
        """Fix the proximal policy: at lag 0 it *is* the behaviour policy, else one forward over all ``T + 1`` rows.

        Values go with it: the stored ones at lag 0, else those of the learner. Stale and fresh never mix.
        """
        b = self.batch
        if self._empty:
            return
        if self._stale:
            self._proximal_forward()
            log_w = b.behaviour_neglogp - b.prox_neglogp
            w = log_w.exp_()
            self._w_TN.copy_(b.time_major(w))
            torch.clamp(w, max=self.settings.w_max, out=b.weight)
        else:
            torch.cat([slab.values_TN for slab in self.slabs_of(index)], dim=1, out=self._values_TN)
            self._w_TN.fill_(1.0)
            b.prox_mu.copy_(b.behaviour_mu)
            b.prox_sigma.copy_(b.behaviour_sigma)
            b.prox_neglogp.copy_(b.behaviour_neglogp)
        if not self._stale or self.settings.behaviour_anchor:
            b.weight.fill_(1.0)
        b.rolling_mu.copy_(b.prox_mu)
        b.rolling_sigma.copy_(b.prox_sigma)
        self._evaluate_final(index)

    def _evaluate_final(self, index: int) -> None:
        """Values of the last observations that ``same_step`` envs keep. At lag 0 these weights are the behaviour's."""
        first, model = 0, self.model
        for slab in self.slabs_of(index):
            envs = slice(first, first + slab.num_envs)
            first = envs.stop
            if slab.final_TNX is None or self._final is None:
                return
            for x, values in zip(slab.final_TNX, self._final[:, envs]):
                if model.central_value is None:
                    normalized = model.running_mean_std.normalize(x, torch.empty_like(x))
                    model.value_mean_std.denormalize(model(normalized).value, values)
                else:
                    critic = model.central_value
                    critic.value_mean_std.denormalize(critic(critic.normalized(x)), values)

    def _proximal_forward(self) -> None:
        b, denormalize, critic = self.batch, self.model.value_normalizer.denormalize, self.model.central_value
        for i in range(b.count):  # in minibatches: the activations of a whole slab would not fit the cache
            part = slice(i * b.size, (i + 1) * b.size)
            output = self.model(b.obs[part])
            b.prox_mu[part] = output.mu
            b.prox_sigma[part] = output.log_std.exp()
            b.prox_neglogp[part] = neglogp(b.actions[part], output.mu, output.log_std)
            denormalize(critic(b.states[part]) if critic and b.states is not None else output.value, b.values[part])
        self._values_TN[:-1].copy_(b.time_major(b.values))
        self.model.denormalized_value(self.model(b.boot_obs), b.boot_states, self._values_TN[-1])

    @torch.no_grad()
    def targets(self, index: int) -> None:
        """Value targets and advantages; then value statistics, before the loss, as rl_games has it."""
        if self._empty:
            return
        for ring in self._targets:
            ring[index % len(ring)]()
        b = self.batch
        b.time_major(b.returns).copy_(self._vs_TN)
        b.time_major(b.values).copy_(self._values_TN[:-1])
        b.time_major(b.advantages).copy_(self._advantages_TN)
        self._explained_variance.copy_(self._explained(b.values, b.returns, b.mask))
        normalizer = self.model.value_normalizer
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
        if self._empty:
            return
        if self.settings.shuffle and index == 0:
            self.batch.shuffle(self._orders[epoch])
        batch = self._minibatches[index]
        if self.critic is not None:
            self.critic.minibatch(batch)
        self.optimizer.zero_grad()
        output = self.model(batch.obs_MO)
        terms = ppo_loss(output, batch, self.settings.loss, self._scalars)
        terms.total.backward()
        with torch.no_grad():
            norm = self.optimizer.step(batch.mask_M.sum())
            # chosen, not multiplied by 0: on fresh data a drift that is not finite must not reach the rate either
            drift = torch.where(self._drift_share > 0, self._drift_share * terms.kl_behaviour, terms.kl_rolling)
            self.learning_rate.after_minibatch(torch.maximum(terms.kl_rolling, drift))
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
                kl = gaussian_kl(batch.prox_mu_MA, batch.prox_sigma_MA, output.mu, output.log_std.exp())
                drift = torch.stack([masked_mean(kl, batch.mask_M, terms.rows), terms.kl_behaviour])
                self._last_epoch_kl += drift / self.batch.count

    @torch.no_grad()
    def finish(self, index: int) -> None:
        """After the last minibatch: observation statistics and the schedule. What is published next is a new version,
        unless no row was trained on; a device knows that before the host does."""
        if self._empty:
            return
        self._update_observation_statistics(index)
        self.learning_rate.after_update(index + 1)
        if self.critic is not None:
            self.critic.learning_rate.after_update(index + 1)
        self.learning_rate.value.copy_(torch.where(self.live, self.learning_rate.value, self._rate_before))
        for tensor in (self._sums, self._last_epoch_kl, self.optimizer.skipped):
            tensor.masked_fill_(~self.live, 0.0)
        self.model.publish_statistics()
        self.version += 1
        self.policy.version.add_(self.live)

    def _set_version(self, version: int) -> None:
        self.model.publish_statistics()
        self.version = version
        self.policy.version.fill_(version)

    def _update_observation_statistics(self, index: int) -> None:
        for slab in self.slabs_of(index):
            obs = slab.obs_TNO[: slab.horizon].flatten(0, 1)
            live = (slab.status_TN == LIVE).flatten().float()
            self.model.running_mean_std.update(obs, live)
            if self.model.central_value is not None and slab.states_TNS is not None:
                self.model.central_value.running_mean_std.update(slab.states_TNS[: slab.horizon].flatten(0, 1), live)

    def metrics(self) -> Dict[str, float]:
        """Host numbers of the update just finished: the one place where the learner waits for its device."""
        return self.name_metrics(self.measure().tolist())

    @torch.no_grad()
    def measure(self) -> Tensor:
        """What :meth:`metrics` are made of, on the device."""
        steps = self.settings.epochs * self.batch.count
        scalars = [self.learning_rate.value, self.optimizer.skipped, self._explained_variance]
        sigma = self.batch.rolling_sigma[: self.batch.rows].mean()
        clipped = (self.batch.actions[: self.batch.rows].abs() > 1.0).float().mean()
        critic = {} if self.critic is None else self.critic.metrics(steps)
        scalars += [sigma, clipped, *critic.values()]
        return torch.cat([self._sums / steps, self._last_epoch_kl, torch.stack(scalars)])

    def name_metrics(self, measured: Sequence[float]) -> Dict[str, float]:
        """The numbers of :meth:`measure` by name."""
        names = [*METRIC_NAMES, "kl/prox", "kl/behaviour", "info/last_lr", "loss/skipped_steps"]
        names += ["loss/explained_variance", "policy/std", "policy/action_clip_fraction"]
        names += [] if self.critic is None else list(self.critic.metrics(1))
        return dict(zip(names, measured))

    def state_dict(self) -> Dict[str, Any]:
        """Weights and statistics under rl_games' keys, optimizer state per parameter, and the learning rate."""
        rate, optimizer = float(self.learning_rate.value), self.optimizer.state_dict()
        own = {"model": self.model.own_state_dict(), "optimizer": optimizer, "learning_rate": rate}
        return {**own, "version": int(self.policy.version), **({} if self.critic is None else self.critic.state_dict())}

    def load_state_dict(self, state: Dict[str, Any]) -> None:
        """Restore in place; missing or unexpected keys are errors."""
        self.model.load_saved(state["model"], state.get("assymetric_vf_nets"))
        self._set_version(int(state["version"]))
        self.optimizer.load_state_dict(state["optimizer"])
        self.learning_rate.value.fill_(state["learning_rate"])
        if self.critic is not None:
            self.critic.load_state_dict(state)
