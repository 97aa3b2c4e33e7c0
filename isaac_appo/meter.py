"""What a run knows about itself: episodes, lag, rows and time, as one row of metrics per update."""

from __future__ import annotations

import time
from collections import deque
from typing import Any, Deque, Dict, List, Optional, Sequence, Tuple

from isaac_appo.config import RunConfig
from isaac_appo.report.guard_rails import idle_advice
from isaac_appo.schedule.executors.base import Executor
from isaac_appo.schedule.overlap import WORTH_ITS_LAG, Overlap, OverlapMeter
from isaac_appo.schedule.pipeline import Pipeline, UpdateReport
from isaac_appo.schedule.program import LEARNER, Lockstep

POLICY = "policy"
_WAITS = {  # what a policy stream, or the learner, waited for
    "free": "wait/policy_for_slab_or_lead",
    "snapshot": "wait/policy_for_version",
    LEARNER: "wait/learner_for_slab",
}


class Meter:
    """Turns the reports of a pipeline into metrics; its episode window is part of a checkpoint."""

    def __init__(self, config: RunConfig, pipeline: Pipeline) -> None:
        self.config, self.pipeline = config, pipeline
        self.episodes: Deque[Tuple[float, int]] = deque(maxlen=config.ppo.games_to_track)
        self.measured: Optional[Overlap] = None
        self._overlap = OverlapMeter(pipeline.program)
        self.seconds = 0.0
        self._started = self._last = time.perf_counter()
        self._clock: Dict[str, float] = {}

    @property
    def mean_reward(self) -> float:
        """Mean return of the last ``games_to_track`` finished episodes; NaN before the first."""
        return _mean([episode[0] for episode in self.episodes])

    @property
    def mean_length(self) -> float:
        """Mean length of those episodes."""
        return _mean([episode[1] for episode in self.episodes])

    def start(self) -> None:
        """Start the clock of this process."""
        self._overlap = OverlapMeter(self.pipeline.program)
        self._started = self._last = time.perf_counter()

    def stop(self) -> None:
        """Stop the clock."""
        self.seconds = time.perf_counter() - self._started

    def row(self, report: UpdateReport) -> Dict[str, float]:
        """The metrics of one update."""
        self.episodes.extend(report.episodes)
        ledger = self.pipeline.ledger.totals()
        assert self.pipeline.executor is not None
        self.measured = self._overlap.boundary(report.update, self.pipeline.executor) or self.measured
        return {
            **report.metrics,
            **self._rewards(),
            **_endings(report),
            **self._lag(report),
            "info/epochs": report.update + 1,
            "info/e_clip": self.config.ppo.e_clip,
            "info/lr_mul": 1.0,
            "nan_envs": report.nan_rows,
            **{"ledger/" + name: rows for name, rows in ledger.items()},
            **self._performance(),
        }

    def _rewards(self) -> Dict[str, float]:
        if not self.episodes:
            return {}
        scale, shift = self.config.ppo.reward_shaper.scale_value, self.config.ppo.reward_shaper.shift_value
        return {
            "rewards/step": self.mean_reward,
            "episode_lengths/step": self.mean_length,
            "shaped_rewards/step": (self.mean_reward + shift * self.mean_length) * scale,
        }

    def _lag(self, report: UpdateReport) -> Dict[str, float]:
        lag = report.lag
        sgd_steps = self.pipeline.program.epochs * self.pipeline.program.minibatches
        return {
            "lag/mean": lag.mean,
            "lag/max": lag.max,
            "lag/sgd_steps": lag.mean * sgd_steps,
            **{f"lag/rows_at_{updates}": rows for updates, rows in lag.histogram.items()},
            "train/version_diff_avg": lag.mean * sgd_steps,
            "train/version_diff_min": lag.min * sgd_steps,
            "train/version_diff_max": lag.max * sgd_steps,
        }

    def _performance(self) -> Dict[str, float]:
        executor = self.pipeline.executor
        assert executor is not None
        now = time.perf_counter()
        wall, self._last = max(now - self._last, 1e-9), now
        clock = self._read_clock(executor)
        spent = {name: value - self._clock.get(name, 0.0) for name, value in clock.items()}
        self._clock = clock
        rows = self.pipeline.ledger.rows
        if not executor.host_clock:  # the streams' own times are the device's: see the summary
            return {"performance/step_inference_rl_update_fps": rows / wall, "perf/_fps": rows / wall}
        return {
            "performance/step_time": spent["env"],
            "performance/step_inference_time": spent["collect"],
            "performance/rl_update_time": spent[LEARNER],
            "performance/step_fps": _rate(rows, spent["env"]),
            "performance/step_inference_fps": _rate(rows, spent["collect"]),
            "performance/step_inference_rl_update_fps": rows / wall,
            "perf/_fps": rows / wall,
            "idle/policy": _idle(spent[POLICY], wall),
            "idle/learner": _idle(spent[LEARNER], wall),
            **{name: value for name, value in spent.items() if name.startswith("wait/")},
        }

    def _read_clock(self, executor: Executor) -> Dict[str, float]:
        """Seconds so far; those of the workers are means, except waits, which are sums."""
        workers = self.pipeline.workers
        clock = {
            POLICY: policy_seconds(executor),
            LEARNER: executor.busy_s[LEARNER],
            "collect": (executor.op_s["act"] + executor.op_s["step"]) / len(workers),
            "env": sum(w.collector.env_s for w in workers) / len(workers),
            **dict.fromkeys(_WAITS.values(), 0.0),
        }
        for key, seconds in list(executor.wait_s.items()):
            stream, event = key.split(" ")
            name = _WAITS.get(LEARNER if stream == LEARNER else event)
            if name is not None:
                clock[name] += seconds
        return clock

    def overlap(self) -> str:
        """How long each stream worked in this process, how much of that overlapped, and what to do if it did not."""
        executor = self.pipeline.executor
        if executor is None:
            return "nothing ran"
        if not executor.host_clock:
            advice = "" if self.measured is None or self.measured.pays else "; overlap does not pay here: schedule=sync"
            return f"{self.measured or 'too few updates to time them alone'}{advice}; {executor.describe()}"
        policy, learner, wall = policy_seconds(executor), executor.busy_s[LEARNER], max(self.seconds, 1e-9)
        hidden = (policy + learner - wall) / max(min(policy, learner), 1e-9)
        text = f"policy stream busy {policy:.1f} s, learner stream busy {learner:.1f} s, of {wall:.1f} s"
        if self.pipeline.program.max_lag == 0:
            return text + " (they take turns at lag 0)"
        text += f"; {100 * min(1.0, max(0.0, hidden)):.0f} % of the shorter one was hidden behind the longer"
        if self.turns_from is not None:
            when = self.measured or "before the resume"
            return f"{text}. Overlap did not pay ({when}): in turns from slab {self.turns_from} on"
        if hidden < WORTH_ITS_LAG:
            return text + ". Overlap does not pay here: schedule=sync is as fast and trains on fresher data"
        advice = idle_advice(_idle(policy, wall), _idle(learner, wall))
        return f"{text}. {advice}" if advice else text

    @property
    def turns_from(self) -> Optional[int]:
        """The slab from which on the streams take turns because overlap did not pay, if that was decided."""
        program = self.pipeline.program
        switched = isinstance(program, Lockstep) and program.switch.at < program.num_updates
        return program.switch.at if switched else None  # type: ignore[attr-defined]

    def state_dict(self) -> List[List[Any]]:
        """The episode window."""
        return [list(episode) for episode in self.episodes]

    def load_state_dict(self, state: Sequence[Sequence[Any]]) -> None:
        """Continue with a saved window."""
        self.episodes.extend((float(total), int(length)) for total, length in state)


def policy_seconds(executor: Executor) -> float:
    """Seconds that a policy stream worked, on average over the workers."""
    seconds = [busy for stream, busy in executor.busy_s.items() if stream != LEARNER]
    return sum(seconds) / len(seconds)


def _endings(report: UpdateReport) -> Dict[str, float]:
    """How the episodes of this update ended; nothing on their lengths where none did."""
    lengths = [length for _, length in report.episodes]
    counts = {"episodes/finished": len(lengths), "episodes/truncated": report.truncated}
    return {**counts, **({"episodes/longest": max(lengths), "episodes/shortest": min(lengths)} if lengths else {})}


def _mean(values: List[Any]) -> float:
    return float(sum(values) / len(values)) if values else float("nan")


def _rate(rows: int, seconds: float) -> float:
    """Rows per second; NaN where the policy stream had already ended."""
    return rows / seconds if seconds > 0 else float("nan")


def _idle(busy: float, wall: float) -> float:
    return min(1.0, max(0.0, 1.0 - busy / wall))
