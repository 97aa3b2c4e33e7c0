"""``isaac-appo bench --gpu``: one script for one GPU, most important first, each stage's numbers on disk when it ends.

What a stage lacks it says, and the others go on: without MuJoCo Warp there is no physics, and launch latency, two bare
streams and the synthetic problem are all that is measured; without Warp the latter runs on torch twins of the kernels.
"""

from __future__ import annotations

import sys
import time
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Callable, Dict, List, NamedTuple, Sequence, Tuple

import torch

from isaac_appo.bench import machine
from isaac_appo.bench.files import table
from isaac_appo.bench.gpu_device import Row, Utilisation, launches, nvidia_smi, streams
from isaac_appo.bench.ratios import Spread, overlap
from isaac_appo.bench.twins import STAND_IN, stand_in_for_warp
from isaac_appo.report.atomic_file import write_json, write_text

SCHEMA = 1
BUDGET_S = 480.0
Say = Callable[[str], None]


class Sizes(NamedTuple):
    """How much is measured. The smallest run shows that the script works, and measures nothing."""

    envs: Tuple[int, ...] = (4096, 1024, 16384)
    updates: int = 40
    repeats: int = 1
    """Times that the blocks are run there and back: A B B A."""
    launches: int = 2000
    sim_steps: int = 500
    widths: Tuple[int, ...] = (128, 512, 1024, 2048, 4096)
    copy_mib: int = 1024
    busy_envs: int = 4096
    warmup: int = 12
    """Updates before the first that counts: every graph has been warmed up and captured by then."""


SIZES = {
    "full": Sizes(),
    "quick": Sizes((4096,), 20, 1, 1000, 200, (128, 1024, 4096), 512),
    "dry": Sizes((16,), 2, 1, 4, 4, (8,), 1, 16, 2),
}


class Stage(NamedTuple):
    """One part of the bench: ``run()`` gives its rows. ``needs`` names what it cannot do without."""

    name: str
    needs: Tuple[str, ...]
    seconds: float
    """Without as much of the budget left it is not begun."""
    run: Callable[[], List[Row]]


class GpuBench:
    """All stages on one device.

    Args:
        folder: of the report, and of one file per stage.
        sizes: a key of SIZES.
        device, words: where, and the overrides that put a task there.
        layer: makes a device layer in place of CUDA's own.
    """

    def __init__(
        self,
        folder: Path,
        sizes: str,
        device: str = "cuda:0",
        words: Sequence[str] = (),
        layer: Any = None,
        say: Say = lambda text: None,
    ) -> None:
        self.folder, self.sizes, self.say, self.kind = folder, SIZES[sizes], say, sizes
        self.device, self.words, self._layer = torch.device(device), list(words), layer
        self.rows: Dict[str, List[Row]] = {}
        self.missing: Dict[str, str] = {}
        self._lab: Any = None
        self._warp = find_spec("warp") is not None and getattr(sys.modules.get("warp"), "__name__", "") != STAND_IN
        if not self._warp:
            stand_in_for_warp()

    # --------------------------------------------------------------------------------------------------------- running

    def run(self, budget_s: float = BUDGET_S, now: Callable[[], float] = time.perf_counter) -> Dict[str, Any]:
        """Run what fits; the report is on disk after every stage. Kernels are compiled before the clock starts."""
        report: Dict[str, Any] = {"schema": SCHEMA, "sizes": self.kind, "machine": self.describe(), "stages": self.rows}
        report.update(missing=self.missing, compile_s=self._compile(now))
        began = now()
        for number, stage in enumerate(self.stages()):
            reason = next((f"no {need}" for need in stage.needs if not self._has(need)), "")
            left = budget_s - (now() - began)
            if not reason and left < stage.seconds * (self.kind != "dry"):
                reason = f"{left:.0f} s of the budget were left"
            if reason:
                self.missing[stage.name] = f"not measured: {reason}"
            else:
                self._measure(stage, number)
            report["seconds"] = now() - began
            write_json(self.folder / "report.json", report)
            write_text(self.folder / "report.md", gpu_markdown(report))
        return report

    def _measure(self, stage: Stage, number: int) -> None:
        try:
            self.rows[stage.name] = stage.run()
        except Exception as error:  # one stage must not cost the others: the machine is lent for minutes
            self.missing[stage.name] = f"not measured: {type(error).__name__}: {error}"
            self.say(f"{stage.name}: {self.missing[stage.name]}")
            return
        write_json(self.folder / f"{number:02d}_{stage.name}.json", {"rows": self.rows[stage.name]})
        for row in self.rows[stage.name]:
            self.say(f"{stage.name}: {row}")

    def _has(self, need: str) -> bool:
        if need == "MuJoCo Warp":
            return self._warp and (self.device.type != "cuda" or find_spec("mujoco_warp") is not None)
        return find_spec(need) is not None

    def stages(self) -> List[Stage]:
        """Most important first."""
        first, *others = [(task, n) for n in self.sizes.envs for task in ("Ant", "Cartpole")]
        physics = ("MuJoCo Warp",)
        found = [
            Stage("launches", (), 5, lambda: launches(self.device, self.sizes.launches, self.sizes.copy_mib)),
            Stage("streams", (), 20, lambda: streams(self.device, self.sizes.widths)),
            Stage(f"{first[0]}_{first[1]}", physics, 40, lambda: self.training(*first)),
            Stage("rl_games", (*physics, "rl_games"), 30, lambda: self.rl_games(*first)),
            Stage("variants", physics, 60, lambda: self.variants(*first)),
            Stage("synthetic", (), 40, self.synthetic),
        ]
        for task, n in others:
            found.append(Stage(f"{task}_{n}", physics, 40, lambda task=task, n=n: self.training(task, n)))  # type: ignore[misc]
        return found

    # ----------------------------------------------------------------------------------------------------- the machine

    def describe(self) -> Dict[str, Any]:
        """GPU, driver and clocks as nvidia-smi has them, versions, and the state of torch's and Warp's memory pools."""
        found = {**machine.describe(), "cuda": torch.version.cuda, "device": str(self.device)}
        names = ("name", "driver_version", "clocks.sm", "clocks.max.sm", "power.limit", "memory.total")
        values = nvidia_smi(names)
        found["gpu"] = dict(zip(names, values[0])) if values else {}
        found["compute_mode"] = "dry run: numbers mean nothing" if self.kind == "dry" else "measured"
        found["kernels"] = "Warp" if self._warp else "torch twins: Warp is not installed"
        if self._warp and self.device.type == "cuda":
            from isaac_appo.kernels import wp

            found["warp_mempool"] = wp.is_mempool_enabled(str(self.device))
        return found

    # ------------------------------------------------------------------------------------------------------ pipelines

    @property
    def lab(self) -> Any:
        """Made when a stage needs it: it brings in Warp."""
        if self._lab is None:
            from isaac_appo.bench.gpu_pipeline import Lab
            from isaac_appo.commands.compose import compose
            from isaac_appo.schedule.executors.device import CudaDevice

            layer = self._layer or (lambda: CudaDevice(self.device))
            composed = lru_cache(None)(lambda words: compose(list(words), "bench").config)
            self._lab = Lab(lambda words: composed(tuple(words)), layer, self.sizes.warmup)
        return self._lab

    def words_of(self, task: str, n: int, *more: str) -> List[str]:
        """Overrides for a task at its own horizon and epochs, in 8 minibatches at most."""
        horizon = 16
        size = max(8, min(32768, n * horizon // 2))
        ppo = "train.params.config"
        return [
            f"task={task}", f"num_envs={n}", f"{ppo}.horizon_length={horizon}", f"{ppo}.minibatch_size={size}",
            "max_iterations=1000000", "env.max_nan_fraction=0.5", "schedule.policy_threads=1",
            "schedule.learner_threads=1", *self.words, *more,
        ]  # fmt: skip

    def _compile(self, now: Callable[[], float]) -> float:
        """Build and load every kernel on a small problem; seconds it took."""
        began = now()
        if self._has("MuJoCo Warp"):
            for task in ("Ant", "Cartpole"):
                self.say(f"compiling the kernels of {task}")
                try:
                    self.lab.block(self.words_of(task, 16), 1)
                except Exception as error:  # the stage itself will say so again, and the others are still worth it
                    self.say(f"{task}: {type(error).__name__}: {error}")
        return now() - began

    def training(self, task: str, n: int) -> List[Row]:
        """Simulation alone; then Tc, Tl, Ta and in turns, there and back; and what follows from them."""
        words, sync = self.words_of(task, n), self.words_of(task, n, "schedule=sync")
        sim_s = self._sim(words)
        plan = {
            "collect": lambda: self._block(words, phase="collect"),
            "learn": lambda: self._block(words, phase="learn"),
            "lockstep": lambda: self._block(words),
            "sync": lambda: self._block(sync),
        }
        blocks: Dict[str, List[Row]] = {name: [] for name in plan}
        for _ in range(self.sizes.repeats):
            for name in (*plan, *reversed(list(plan))):
                blocks[name].append(plan[name]())
        found = {name: Spread.of([row["s"] for row in rows]) for name, rows in blocks.items()}
        rows = [
            {"task": task, "envs": n, "what": name, "ms": 1e3 * s.median, "low": 1e3 * s.low, "high": 1e3 * s.high,
             "fps": 16 * n / s.median, "state": blocks[name][-1]["state"], "use": blocks[name][-1]["use"]}
            for name, s in found.items()
        ]  # fmt: skip
        rows.append({"task": task, "envs": n, "what": "simulation", "ms": 16e3 * sim_s, "fps": n / sim_s, "state": ""})
        collect, learn, together = (found[name].median for name in ("collect", "learn", "lockstep"))
        used = [blocks[name][-1]["use"] for name in ("collect", "learn")]
        bound = max(collect, learn, *([used[0] * collect + used[1] * learn] if None not in used else []))
        ratios = {
            **overlap(collect, learn, together)._asdict(),
            "R": 16 * sim_s / together,
            "R_collect": 16 * sim_s / collect,
        }
        share = {"bound_ms": 1e3 * bound, "share_of_bound": bound / together, "use": used}
        return [*rows, {"task": task, "envs": n, "what": "overlap", **ratios, **share, "state": ""}]

    def _block(self, words: Sequence[str], **how: Any) -> Row:
        with Utilisation(self.kind != "dry") as use:
            block = self.lab.block(words, self.sizes.updates, **how)
        return {"s": block.update_s, "state": self.lab.state(), "use": use.share()}

    def _sim(self, words: Sequence[str]) -> float:
        """Seconds of a step with random actions, resets and rewards included."""
        device = self.lab.device()
        stream = device.stream("policy/0", True)
        (env,) = self.lab.envs(words)
        env.reset()
        actions = [2.0 * torch.rand(env.num_envs, env.num_actions, device=env.device) - 1.0 for _ in range(16)]
        steps = iter(range(10**9))

        def step() -> None:
            stream.run(lambda: env.step(actions[next(steps) % 16]))

        def rest() -> None:
            with device.host_may_wait():
                device.synchronize()

        rest()  # the reset was on torch's own stream
        for _ in range(20):
            step()
        rest()
        began = time.perf_counter()
        for _ in range(self.sizes.sim_steps):
            step()
        rest()
        return (time.perf_counter() - began) / self.sizes.sim_steps

    def rl_games(self, task: str, n: int) -> List[Row]:
        """rl_games' own agent on the same environments."""
        from isaac_appo.bench.problem import rl_games_params
        from isaac_appo.bench.rl_games_run import Observer
        from isaac_appo.bench.window import Effort, Window
        from isaac_appo.build import learner_settings
        from isaac_appo.integrations.rl_games import RlGamesEnv, train

        words = self.words_of(task, n)
        config, window = self.lab.compose(words), Window(Effort(3, self.sizes.updates))
        (env,) = self.lab.envs(words)
        params = rl_games_params(config, learner_settings(config).minibatch_size)
        train(params, RlGamesEnv(env), 10**9, 1, Observer(window.tick))
        return [self._row(task, n, "rl_games", window.block.update_s, "eager")]

    def variants(self, task: str, n: int) -> List[Row]:
        """One thing changed at a time, each beside the default: graphs, priorities, slabs, half batches."""
        changed: Dict[str, Tuple[List[str], Dict[str, Any]]] = {
            "lag 1, policy urgent": ([], {}),
            "graphs off": (["schedule.graphs=False"], {}),
            "no priorities": ([], {"urgent": "none"}),
            "learner urgent": ([], {"urgent": "learner"}),
            "3 slabs, lag 2": (["schedule.lag=2"], {}),
            "half batches": (["schedule.num_workers=2"], {}),
        }
        rows = []
        for name in (*changed, *reversed(list(changed))):
            more, how = changed[name]
            block = self._block(self.words_of(task, n, *more), **how)
            rows.append(self._row(task, n, name, block["s"], block["state"]))
        return rows

    def synthetic(self) -> List[Row]:
        """Training on the synthetic simulator, whose occupancy is that of matrix products of a width."""
        from isaac_appo.bench.busy_env import BusyEnv

        n, rows = self.sizes.busy_envs, []
        for width in self.sizes.widths:
            envs, words = [BusyEnv(n, self.device, width, 10)], self.words_of("Ant", n)
            times = [self._block(words, phase=phase, envs=envs)["s"] for phase in ("collect", "learn", "both")]
            row = self._row(f"width {width}", n, "lockstep", times[2], self.lab.state())
            rows.append({**row, **overlap(*times)._asdict()})
        return rows

    @staticmethod
    def _row(task: str, n: int, what: str, seconds: float, state: str) -> Row:
        return {"task": task, "envs": n, "what": what, "ms": 1e3 * seconds, "fps": 16 * n / seconds, "state": state}


def gpu_markdown(report: Dict[str, Any]) -> str:
    """The report to read: a table a stage, and what was not measured."""
    m = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    gpu = ", ".join(f"{key} {value}" for key, value in m["gpu"].items()) or "no GPU"
    parts = [
        "# GPU bench",
        f"{m['compute_mode']}. {gpu}; CUDA {m['cuda']}; {versions}; kernels: {m['kernels']}, memory pool: "
        f"{m.get('warp_mempool', '-')}. "
        f"{m['cpu']}, {m['cores']} cores. "
        f"{report['seconds']:.0f} s, after {report['compile_s']:.0f} s of compiling kernels.",
    ]
    for name, rows in report["stages"].items():
        head = list(dict.fromkeys(key for row in rows for key in row))
        parts += [f"## {name}", table(head, [[_cell(row.get(key)) for key in head] for row in rows])]
    if report["missing"]:
        parts += ["## Not measured", "\n".join(f"- {name}: {why}" for name, why in report["missing"].items())]
    return "\n\n".join(parts) + "\n"


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"
    return "-" if value is None else str(value)
