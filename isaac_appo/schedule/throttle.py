"""The soft valve on how far an actor runs ahead of the learner, and the configuration object around it.

``AsyncActorLearnerConfig`` carries the fields, defaults, checks and derived values of a single-host asynchronous
actor-learner. It bounds queue depth in env steps; the bound on policy lag is the schedule's own
(:class:`isaac_appo.schedule.program.Free`), row by row.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Iterator, List, NamedTuple, Set, Tuple


class ActorThrottle(NamedTuple):
    """Pauses an actor that has sent too much.

    Policy broadcast ``b`` proves that ``b * steps_per_broadcast`` env steps of each actor have been consumed; an actor
    pauses once it has sent that much plus ``max_lead_steps``. ``max_lead_steps = 0`` switches the valve off.
    """

    steps_per_broadcast: int
    max_lead_steps: int

    @classmethod
    def disabled(cls) -> ActorThrottle:
        """A valve that never closes."""
        return cls(0, 0)

    def should_pause(self, sent: int, broadcast: int) -> bool:
        """Whether an actor that has sent ``sent`` env steps and last saw ``broadcast`` must wait for the next one."""
        return self.max_lead_steps != 0 and sent >= broadcast * self.steps_per_broadcast + self.max_lead_steps

    def broadcasts_needed(self, sent: int) -> int:
        """The smallest broadcast index at which an actor that has sent ``sent`` env steps may go on."""
        if self.max_lead_steps == 0 or sent < self.max_lead_steps:
            return 0
        return (sent - self.max_lead_steps) // self.steps_per_broadcast + 1


def lag_within(lead: int, horizon: int) -> int:
    """The largest policy lag, in updates, that a lead of ``lead`` env steps lets happen, whatever is broadcast when.

    A row ``sent = slab * T + t`` is collected only once ``b * k > (sent - lead) / T`` slabs have been consumed, ``k``
    updates to a broadcast, and with those weights or newer: ``slab - b * k < lead / T``.
    """
    return (lead - 1) // horizon


@dataclass(frozen=True)
class AsyncActorLearnerConfig:
    """A single-host asynchronous actor-learner: ``num_actors`` threads of one environment each, and one learner.

    A field and a method cannot share a name in Python, so the builder methods are :meth:`with_vtrace`,
    :meth:`with_rho_bar` and :meth:`with_c_bar`. They may be chained: nothing is
    checked before :meth:`validate`.

    Attributes:
        num_actors: actors, each with one environment.
        num_steps: env steps of each actor that one update trains on.
        total_env_steps: budget over all actors; what does not fill an update is left over.
        broadcast_every: the weights are broadcast after every so many updates.
        max_lead_steps: env steps that an actor may be ahead of what the learner has consumed of it, cumulatively;
            0 means ``2 * broadcast_every * num_steps``.
        gamma: discount.
        gae_lambda: lambda of GAE; V-trace has lambda 1 here, yet the value is checked.
        use_vtrace: V-trace instead of GAE.
        vtrace_rho_bar, vtrace_c_bar: its caps; checked whether it is used or not.
        seed: actor ``i`` draws its actions with ``seed + 1 + i``.
    """

    num_actors: int = 4
    num_steps: int = 256
    total_env_steps: int = 200_000
    broadcast_every: int = 1
    max_lead_steps: int = 0
    gamma: float = 0.99
    gae_lambda: float = 0.95
    use_vtrace: bool = False
    vtrace_rho_bar: float = 1.0
    vtrace_c_bar: float = 1.0
    seed: int = 0

    def validate(self) -> None:
        """Raise ValueError with every fault, a line each, unless this configuration can run."""
        faults = dict([*self._count_faults(), *self._real_faults()])
        texts = [*faults.values(), *self._joint_faults(set(faults))]
        if texts:
            raise ValueError("\n".join(texts))

    def num_updates(self) -> int:
        """Updates that the budget pays for, at least 1. Raises ValueError as :meth:`validate`."""
        self.validate()
        return self.total_env_steps // (self.num_steps * self.num_actors)

    def effective_max_lead_steps(self) -> int:
        """``max_lead_steps``, or what its 0 stands for."""
        return self.max_lead_steps or 2 * self.broadcast_every * self.num_steps

    def actor_throttle(self) -> ActorThrottle:
        """The valve of each actor. Raises ValueError as :meth:`validate`."""
        self.validate()
        return ActorThrottle(self.broadcast_every * self.num_steps, self.effective_max_lead_steps())

    def actor_seed(self, actor: int) -> int:
        """Seed of an actor's action noise. Raises ValueError for an actor that does not exist."""
        if not 0 <= actor < self.num_actors:
            raise ValueError(f"actor = {actor}: must be in 0..{self.num_actors - 1}, as num_actors = {self.num_actors}")
        return self.seed + 1 + actor

    def with_vtrace(self, enabled: bool) -> AsyncActorLearnerConfig:
        """The same with ``use_vtrace`` as given."""
        return replace(self, use_vtrace=enabled)

    def with_rho_bar(self, rho_bar: float) -> AsyncActorLearnerConfig:
        """The same with ``vtrace_rho_bar`` as given."""
        return replace(self, vtrace_rho_bar=rho_bar)

    def with_c_bar(self, c_bar: float) -> AsyncActorLearnerConfig:
        """The same with ``vtrace_c_bar`` as given."""
        return replace(self, vtrace_c_bar=c_bar)

    def to_overrides(self) -> List[str]:
        """The command line of ``isaac-appo train`` that means the same; the task is to be added.

        Each actor is a policy stream of one environment, and ``schedule.max_policy_lag`` is what the lead implies, so
        that the lead is the valve that closes. Raises ValueError as :meth:`validate`, and for a seed of 2**31 or more.
        """
        self.validate()
        if self.seed >= 2**31:
            raise ValueError(f"seed = {self.seed}: this trainer takes seeds below 2**31. Use {self.seed % 2**31}")
        lead = self.effective_max_lead_steps()
        ppo = "train.params.config."
        words = [f"num_envs={self.num_actors}", f"max_iterations={self.num_updates()}", f"seed={self.seed}"]
        words += [f"{ppo}horizon_length={self.num_steps}", f"{ppo}gamma={self.gamma}"]
        words += [f"{ppo}tau={1.0 if self.use_vtrace else self.gae_lambda}"]
        words += ["schedule=free", f"schedule.num_workers={self.num_actors}"]
        words += [f"schedule.broadcast_every={self.broadcast_every}", f"schedule.max_lead_steps={lead}"]
        words += [f"schedule.max_policy_lag={lag_within(lead, self.num_steps)}"]
        if not self.use_vtrace:
            return [*words, "advantage=gae"]
        caps = [f"advantage.rho_bar={self.vtrace_rho_bar}", f"advantage.c_bar={self.vtrace_c_bar}"]
        return [*words, "advantage=vtrace", *caps]

    def _count_faults(self) -> Iterator[Tuple[str, str]]:
        for name in ("num_actors", "num_steps", "total_env_steps", "broadcast_every"):
            value = getattr(self, name)
            if not _is_count(value) or value < 1:
                yield name, f"{name} must be >= 1 and whole, got {value!r}. Use {_default(name)}"
        if not _is_count(self.max_lead_steps) or self.max_lead_steps < 0:
            value, fix = self.max_lead_steps, "Use 0 for 2 * broadcast_every * num_steps"
            yield "max_lead_steps", f"max_lead_steps must be >= 0 and whole, got {value!r}. {fix}"
        if not _is_count(self.seed) or not 0 <= self.seed < 2**64:
            yield "seed", f"seed must be in [0, 2**64) and whole, got {self.seed!r}. Use 0"

    def _real_faults(self) -> Iterator[Tuple[str, str]]:
        for name in ("gamma", "gae_lambda"):
            value = getattr(self, name)
            if not _is_real(value) or not 0 < value <= 1:
                yield name, f"{name} must be in (0, 1], got {value!r}. Use {_default(name)}"
        if not isinstance(self.use_vtrace, bool):
            yield "use_vtrace", f"use_vtrace must be True or False, got {self.use_vtrace!r}. Use False"
        for name in ("vtrace_rho_bar", "vtrace_c_bar"):
            value = getattr(self, name)
            if not _is_real(value) or not 0 < value < math.inf:
                yield name, f"{name} must be > 0 and finite, got {value!r}. Use {_default(name)}"

    def _joint_faults(self, bad: Set[str]) -> Iterator[str]:
        """Rules over several fields, each asked only where those fields are in their ranges (``bad`` are not)."""
        if not bad & {"total_env_steps", "num_steps", "num_actors"}:
            update = self.num_steps * self.num_actors
            if self.total_env_steps < update:
                rule = f"total_env_steps must cover one update, num_steps * num_actors = {update}"
                yield f"{rule}, got {self.total_env_steps}. Use {update} or more"
        if not bad & {"max_lead_steps", "broadcast_every", "num_steps"}:
            cycle = self.broadcast_every * self.num_steps
            if 0 < self.max_lead_steps < cycle:
                rule = f"max_lead_steps must be 0 or >= broadcast_every * num_steps = {cycle}"
                yield f"{rule}, got {self.max_lead_steps}: the learner's fill loop deadlocks. Use {2 * cycle}"
        if not bad & {"vtrace_rho_bar", "vtrace_c_bar"} and self.vtrace_rho_bar < self.vtrace_c_bar:
            rule = f"vtrace_rho_bar must be >= vtrace_c_bar = {self.vtrace_c_bar}"
            yield f"{rule}, got {self.vtrace_rho_bar}. Use {self.vtrace_c_bar}"


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_real(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _default(name: str) -> Any:
    return getattr(AsyncActorLearnerConfig, name)
