"""Pipelines on one device that a GPU bench measures: whole, or one of their two phases with the other left out."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Sequence, Tuple

from isaac_appo.bench.window import Block, Effort, Window
from isaac_appo.build import build_program, build_workers, learner_settings, model_maker, pipeline_settings
from isaac_appo.config import RunConfig
from isaac_appo.env.vec_env import VecEnv
from isaac_appo.schedule.device_pipeline import DevicePipeline
from isaac_appo.schedule.executors.base import Executor
from isaac_appo.schedule.executors.device import Device
from isaac_appo.schedule.pipeline import UpdateReport

PRIORITIES: Dict[str, Callable[[str], bool]] = {
    "policy": lambda name: name.startswith("policy"),
    "none": lambda name: False,
    "learner": lambda name: name == "learner",
}
"""Which stream is urgent."""


class PhasePipeline(DevicePipeline):
    """Runs as any other, but from ``only_from`` on enqueues no work of the other phase than ``phase``: ``collect``,
    ``learn`` or ``both``.

    Streams, graphs, slabs and accounts stay as they are, so that a phase alone is what it is in a run. Priorities do
    not change during it.
    """

    phase = "both"
    only_from = 6

    def _make_executor(self) -> Executor:
        executor = super()._make_executor()
        self._cuda._solo = range(0)  # nothing in turns: it would be part of what is measured
        return executor

    def _launch(self, key: Any, work: Any, *args: Any, blocking: bool = False) -> None:
        if self.phase != "learn" or key is None or key[0] != "bootstrap" or args[0] < self.only_from:
            super()._launch(key, work, *args, blocking=blocking)

    def _learn(self, key: Any, *args: int) -> None:
        if self.phase != "collect" or args[0] < self.only_from:
            super()._learn(key, *args)

    def _act(self, worker: int, slab: int, t: int) -> None:
        if self.phase != "learn" or slab < self.only_from:
            super()._act(worker, slab, t)
        elif t == 0:
            self._slab_versions[worker][self._slot(slab)] = self._acting[worker]
            self._launch(None, self._restamp, worker, self._slot(slab))

    def _restamp(self, worker: int, slot: int) -> None:
        """The rows of an earlier rollout once more, as if they were new."""
        w = self.workers[worker]
        w.slabs[slot].version_TN.copy_(w.policy.version.expand_as(w.slabs[slot].version_TN))

    def _step(self, worker: int, slab: int, t: int) -> None:
        if self.phase != "learn" or slab < self.only_from:
            super()._step(worker, slab, t)


class Lab:
    """One device, and the environments that have been built on it.

    Args:
        compose: overrides to a configuration.
        layer: makes the device layer of a pipeline.
        warmup: updates that do not count, at the start of a block.
    """

    def __init__(self, compose: Callable[[Sequence[str]], RunConfig], layer: Callable[[], Device], warmup: int) -> None:
        self.compose, self.layer, self.warmup = compose, layer, warmup
        self._envs: Dict[Tuple[str, ...], Sequence[VecEnv]] = {}
        self.last: Optional[DevicePipeline] = None

    def envs(self, words: Sequence[str]) -> Sequence[VecEnv]:
        """The environments of a configuration, one per worker; kept until others are asked for."""
        key = tuple(word for word in words if word.startswith(("task=", "num_envs=", "schedule.num_workers=")))
        if key not in self._envs:
            self.close()
            self._envs[key] = build_workers(self.compose(words), "")
        return self._envs[key]

    def close(self) -> None:
        """Release the engines."""
        for envs in self._envs.values():
            for env in envs:
                env.close()
        self._envs.clear()
        self.last = None

    def device(self, urgent: str = "policy") -> Device:
        """A layer whose ``urgent`` streams go first."""
        device, rule = self.layer(), PRIORITIES[urgent]
        plain = device.stream
        device.stream = lambda name, _: plain(name, rule(name))  # type: ignore[method-assign, assignment]
        return device

    def pipeline(
        self,
        words: Sequence[str],
        on_boundary: Callable[[UpdateReport], None],
        phase: str = "both",
        urgent: str = "policy",
        envs: Optional[Sequence[VecEnv]] = None,
    ) -> PhasePipeline:
        """A new pipeline for ``words``; ``envs`` stand for those of its task."""
        config = self.compose(words)
        envs = self.envs(words) if envs is None else envs
        first, learner = envs[0], learner_settings(config)
        make = model_maker(config, first.num_obs, first.num_actions)
        place = first.device
        program, settings = build_program(config, learner.minibatches), pipeline_settings(config)
        pipeline = PhasePipeline(
            envs, lambda: make().to(place), program, settings, learner, on_boundary, device=self.device(urgent)
        )
        pipeline.phase = phase
        return pipeline

    def block(self, words: Sequence[str], updates: int, **how: Any) -> Block:
        """Wall seconds per update in the steady state."""
        window = Window(Effort(self.warmup, updates))

        def on_boundary(report: UpdateReport) -> None:
            if window.tick():
                pipeline.stop()

        pipeline = self.pipeline(words, on_boundary, **how)
        pipeline.run()
        self.last = pipeline
        return window.block

    def state(self) -> str:
        """Graphs and memory of the pipeline that ran last."""
        return "" if self.last is None else self.last._cuda.describe()
