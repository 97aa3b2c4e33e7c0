"""One mouth for the whole run: metrics go to every sink, messages to the console and log.txt."""

from __future__ import annotations

import contextlib
import threading
import time
from functools import partial
from pathlib import Path
from typing import Callable, Iterable, NamedTuple, TextIO

from isaac_appo.report.console import ConsoleSink, make_console
from isaac_appo.report.csv import CsvSink
from isaac_appo.report.fps import FpsMeter
from isaac_appo.report.metrics import undocumented
from isaac_appo.report.run_dir import RunDir
from isaac_appo.report.sink import Sink
from isaac_appo.report.tensorboard import TensorboardSink
from isaac_appo.report.wandb_sink import WandbOptions, WandbSink


class Start(NamedTuple):
    """Where a run takes up: counters of the checkpoint it resumes from, zeros for a new run."""

    update: int = 0
    """Completed updates. Rows of metrics.csv beyond it are dropped."""
    env_steps: int = 0
    elapsed_s: float = 0.0


class Reporter:
    """Owns the sinks and the FPS meter. May be called from any thread.

    A sink that raises (disk full) is switched off with one warning and never stops training. `update` and `env_steps`
    are counts of what is complete, over all resumes.
    """

    def __init__(
        self,
        run_dir: RunDir,
        total_env_steps: int,
        total_updates: int = 0,
        mode: str = "auto",
        interval_s: float = 5.0,
        tensorboard: bool = True,
        title: str = "isaac_appo",
        start: Start = Start(),  # noqa: B008 (immutable)
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
        wandb: WandbOptions | None = None,
    ) -> None:
        self._run_dir, self._title, self._clock = run_dir, title, clock
        self._start, self._opened = start, clock()
        self._lock = threading.RLock()
        self._unknown: set[str] = set()
        self._log_works = self._console_works = True
        self.fps = FpsMeter(start.env_steps, clock=clock)
        self._console = make_console(mode, title, total_env_steps, total_updates, interval_s, stream)
        self._sinks: dict[str, Sink] = {"console": self._console}
        self._open("metrics.csv", lambda: CsvSink(run_dir.metrics_csv, start.update))
        if tensorboard:
            self._open("TensorBoard", lambda: TensorboardSink(run_dir.tensorboard, start.env_steps))
        if wandb is not None:
            self._open("W&B", partial(WandbSink, wandb, run_dir, self.message, self.warn))
        self._open("heartbeat.json", lambda: _Heartbeat(run_dir))

    @property
    def elapsed_s(self) -> float:
        """Wall time of the run, earlier processes included: what a checkpoint stores for the next Start."""
        return self._start.elapsed_s + self._clock() - self._opened

    def log(self, update: int, env_steps: int, metrics: dict[str, float]) -> None:
        """Write the metrics of one update to every sink, with the FPS added."""
        with self._lock:
            self._warn_undocumented(metrics)
            self.fps.update(env_steps)
            row = {**{key: float(value) for key, value in metrics.items()}, **self.fps.rates()}
            elapsed = self.elapsed_s
            self._each(lambda sink: sink.write(env_steps, update, elapsed, row))

    def video(self, path: Path, env_steps: int) -> None:
        """Offer a finished video, recorded at `env_steps`, to every sink."""
        self._each(lambda sink: sink.video(path, env_steps))

    def artifact(self, path: Path) -> None:
        """Offer a file worth keeping to every sink."""
        self._each(lambda sink: sink.artifact(path))

    def message(self, text: str) -> None:
        """Say `text` above the live panel and in log.txt."""
        self._tell(text, lambda console: console.message(text))

    def warn(self, text: str) -> None:
        """A message that starts with WARNING."""
        self.message(f"WARNING: {text}")

    def summary(self, lines: Iterable[str]) -> None:
        """Show the closing block and store it in log.txt."""
        lines = list(lines)
        self._tell("\n".join(lines), lambda console: console.summary(self._title, lines))

    def close(self) -> None:
        """Close every sink. A second call does nothing."""
        with self._lock:
            self._each(lambda sink: sink.close())
            self._sinks.clear()

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, name: str, make: Callable[[], Sink]) -> None:
        try:
            self._sinks[name] = make()
        except (OSError, ImportError) as error:
            self.warn(f"{name} is off, it could not be opened: {error}. Training goes on.")

    def _each(self, use: Callable[[Sink], None]) -> None:
        with self._lock:
            for name, sink in list(self._sinks.items()):
                self._guard(name, sink, use)

    def _guard(self, name: str, sink: Sink, use: Callable[[Sink], None]) -> None:
        try:
            use(sink)
        except Exception as error:  # whatever a reporter does wrong, hours of training weigh more
            del self._sinks[name]
            with contextlib.suppress(Exception):
                sink.close()
            self.warn(f"{name} is off for the rest of this run: {type(error).__name__}: {error}. Training goes on.")

    def _tell(self, text: str, show: Callable[[ConsoleSink], None]) -> None:
        """Append `text` to log.txt and `show` it; each goes on without the other."""
        with self._lock:
            self._append_log(text)
            try:
                if self._console_works:
                    show(self._console)
            except Exception as error:  # a closed pipe or terminal
                self._console_works = False
                self._append_log(f"WARNING: the console is gone ({type(error).__name__}: {error}). Training goes on.")

    def _append_log(self, text: str) -> None:
        try:
            if self._log_works:
                self._run_dir.append_log(text)
        except OSError as error:
            self._log_works = False
            self.warn(f"log.txt is off for the rest of this run: {error}. Training goes on.")

    def _warn_undocumented(self, metrics: dict[str, float]) -> None:
        new = set(undocumented(metrics)) - self._unknown
        if new:
            self._unknown |= new
            self.warn(f"logged but not described in METRICS: {', '.join(sorted(new))}.")


class _Heartbeat(Sink):
    def __init__(self, run_dir: RunDir) -> None:
        self._run_dir = run_dir

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        self._run_dir.heartbeat(update, env_steps)
