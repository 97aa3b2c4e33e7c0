"""``isaac-appo train -m``: many runs, a process each, and what came out of them on one page."""

from __future__ import annotations

import math
import os
import shlex
import sys
from pathlib import Path
from typing import Any, Dict, Iterator, List, Sequence

from hydra.core.override_parser.overrides_parser import OverridesParser

from isaac_appo.commands.compose import compose, hydra_loader, parse_arguments
from isaac_appo.config.errors import ConfigError
from isaac_appo.sweep.launch import LocalLauncher, SubmititLauncher, run_jobs, visible_gpus
from isaac_appo.sweep.plan import Axis, Job, Options, combinations, find_axes, read_options, run_name, sweep_name
from isaac_appo.sweep.summary import Row, read_summary, row_of, write_summary

FLAGS = ("-m", "--multirun")
_INTERRUPTED = 130


def main(argv: List[str]) -> int:
    """Run the sweep: 0 if every run ended well, 1 if any failed, 130 if it was interrupted, 2 for a wrong line."""
    errors: List[object] = []
    words = parse_arguments([word for word in argv if word not in FLAGS], errors).overrides
    options, words = read_options(words, errors)
    with hydra_loader() as loader:
        axes, fixed = find_axes(words, loader, errors)
    errors += _refusals(axes, options)
    if errors:
        raise ConfigError(errors)
    return Sweep(axes, fixed, options, sweep_name(words)).run()


def _refusals(axes: Sequence[Axis], options: Options) -> Iterator[str]:
    """What a sweep cannot be made of."""
    if not axes:
        yield "-m: no key has several values. Write for example seed=1,2,3, or leave -m out"
    if options.sweeper == "optuna" and options.jobs == 0:
        yield "sweep.jobs = 0: a search knows its next run from the last ones, so none can be printed. Use 1"
    for axis in axes:
        if options.sweeper == "basic" and not axis.values:
            yield f"{axis.key}: an interval is searched, not listed. Use hydra/sweeper=optuna, or list its values"
        if options.sweeper == "optuna" and axis.key == "seed":
            yield "seed: a search over seeds finds the luckiest one. Give one seed"


class Sweep:
    """One sweep: its folder, its runs, and the page that it ends with."""

    def __init__(self, axes: Sequence[Axis], fixed: List[str], options: Options, name: str) -> None:
        self.axes, self.options = axes, options
        given = {o.key_or_group: o.value() for o in OverridesParser.create().parse_overrides(fixed)}
        self.base = str(given.get("experiment") or name)
        self.fixed = [word for word in fixed if not word.lstrip("+").startswith("experiment=")]
        self.fixed += [] if "wandb_group" in given else [f"wandb_group={self.base}"]
        self.folder = Path(str(given.get("run_root") or "runs")).expanduser().absolute() / "sweeps" / self.base
        self.rows: List[Row] = []
        self.total = int(options.search["n_trials"])
        self.search: Any = None

    def run(self) -> int:
        """All of it; returns the exit code."""
        jobs = None if self.options.sweeper == "optuna" else self._grid()
        if self.options.jobs == 0:
            print("\n".join(shlex.join(["isaac-appo", "train", *job.words]) for job in jobs or []))
            return 0
        (self.folder / "jobs").mkdir(parents=True, exist_ok=True)
        launcher = self._launcher(self.total)
        drawn = iter(jobs) if jobs is not None else self._searched()
        print(f"Sweep {self.base}: {self.total} runs, {launcher.slots} at a time. Folder: {self.folder}", flush=True)
        finished = run_jobs(drawn, launcher, self._log, self._on_start, self._on_end)
        self._page()
        if not finished:
            print("Interrupted: the same command goes on where each run was", file=sys.stderr)
            return _INTERRUPTED
        failed = [row for row in self.rows if row.exit_code != 0]
        if failed:
            print(f"isaac-appo train: {len(failed)} of {len(self.rows)} runs failed, see above", file=sys.stderr)
        return 1 if failed else 0

    def _grid(self) -> List[Job]:
        """A job for every combination, all of them checked before the first one starts."""
        jobs: List[Job] = []
        errors: Dict[str, None] = {}
        for number, swept in enumerate(combinations(self.axes), 1):
            try:
                jobs.append(self._job(number, swept, run_name(self.base, swept)))
            except ConfigError as error:  # noqa: PERF203 (all of them are told)
                chosen = " ".join(f"{key}={value}" for key, value in swept.items() if key != "seed")
                errors.update({f"with {chosen or 'any seed'}: {line}": None for line in error.errors})
        if errors:
            raise ConfigError(list(errors))
        self.total = len(jobs)
        return jobs

    def _searched(self) -> Iterator[Job]:
        try:
            from isaac_appo.sweep.search import Search

            self.search = Search(self.axes, self.options.search, self.base, self.folder)
            self.rows = read_summary(self.folder / "sweep_summary.csv")  # of the trials that the study knows
        except ImportError as error:
            raise ConfigError([f"hydra/sweeper=optuna: {error}. pip install 'isaac-appo[optuna]'"]) from error
        yield from self.search.jobs(lambda n, swept: self._job(n + 1, swept, f"{self.base}_trial-{n}"))

    def _job(self, number: int, swept: Dict[str, str], experiment: str) -> Job:
        words = [*self.fixed, *(f"{key}={value}" for key, value in swept.items()), f"experiment={experiment}"]
        composed = compose(words, "train")
        config = composed.config
        place = Path(config.run_root).expanduser().absolute() / config.task.name / experiment / f"s{config.seed}"
        return Job(number, composed.overrides, swept, place)

    def _launcher(self, count: int) -> Any:
        asked, kind = self.options.jobs, self.options.launcher
        if kind == "local":
            gpus = visible_gpus()
            slots = asked if asked > 0 else len(gpus) or max(1, len(os.sched_getaffinity(0)) // 2)
            return LocalLauncher(min(slots, count), gpus)
        cluster, slots = "local" if kind == "submitit_local" else "slurm", asked if asked > 0 else count
        try:
            return SubmititLauncher(self.folder / "submitit", cluster, self.options.launcher_params, slots)
        except ImportError as error:
            raise ConfigError([f"hydra/launcher={kind}: {error}. pip install 'isaac-appo[slurm]'"]) from error
        except (RuntimeError, ValueError) as error:
            raise ConfigError([f"hydra/launcher={kind}: {error}"]) from error

    def _log(self, job: Job) -> Path:
        return self.folder / "jobs" / f"{job.number:03d}.log"

    def _on_start(self, job: Job, slot: int) -> None:
        print(f"[{job.number}/{self.total}] {job}: started in slot {slot}, log {self._log(job)}", flush=True)

    def _on_end(self, job: Job, exit_code: int, seconds: float) -> None:
        row = row_of(job, exit_code, seconds)
        self.rows.append(row)
        write_summary(self.folder / "sweep_summary.csv", self.rows)
        if self.search is not None:
            self.search.tell(job, row.final_reward if row.exit_code == 0 else math.nan)
        reward = "no episode ended" if math.isnan(row.final_reward) else f"final return {row.final_reward:.1f}"
        ends = {0: reward, _INTERRUPTED: f"stopped, exit code {_INTERRUPTED}"}
        text = ends.get(row.exit_code, f"FAILED with exit code {row.exit_code}")
        print(f"[{row.job}/{self.total}] {row.overrides}: {text} after {row.seconds:.0f} s", flush=True)
        if row.exit_code not in ends:
            print(f"    {_last_line(self._log(job))}", flush=True)

    def _page(self) -> None:
        """The table of settings, best first, and the figure, from the runs that ended well."""
        from isaac_appo.report.seeds import draw_groups, groups_table, make_groups

        members: Dict[Any, List[Path]] = {}
        for row in self.rows:
            if row.exit_code == 0 and math.isfinite(row.final_reward):
                task = Path(row.run_dir).parent.parent.name
                label = " ".join(w for w in row.overrides.split(" ") if not w.startswith(("seed=", "task=")))
                members.setdefault((task, label or self.base), []).append(Path(row.run_dir))
        groups = make_groups((task, label, runs) for (task, label), runs in members.items())
        print(f"\nSummary: {self.folder / 'sweep_summary.csv'}")
        if groups:
            table = groups_table(groups)
            (self.folder / "sweep.md").write_text(table + "\n", encoding="utf-8")
            draw_groups(groups, self.folder / "sweep.png")
            print(f"Picture: {self.folder / 'sweep.png'}\n\n{table}")


def _last_line(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().split("\n")
    return lines[-1] or "(no output)"
