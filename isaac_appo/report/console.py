"""What a run shows while it trains: a live panel on a terminal, one plain line every few seconds elsewhere."""

from __future__ import annotations

import math
import os
import sys
import time
from typing import Callable, Iterable, TextIO

from rich.console import Console as RichConsole
from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from isaac_appo.report.sink import Sink

MODES = ("auto", "rich", "plain", "off")
_REFRESH_S = 0.2
_WIDTH = 100
_LINE = (
    "{percent:>6} | step {step} | FPS {fps10}/{fps60}/{fps300} | ETA {eta} | reward {reward} | len {length} | "
    "KL {kl} | LR {lr} | lag {lag_mean}/{lag_max} | idle P {idle_policy} L {idle_learner} | update {update} | {elapsed}"
)


class ConsoleSink(Sink):
    """A sink that can also say something."""

    def message(self, text: str) -> None:
        """Show `text` at once, above what is being updated."""

    def summary(self, title: str, lines: Iterable[str]) -> None:
        """Show the closing block."""


class OffConsole(ConsoleSink):
    """No progress; messages and the closing block still appear, as plain text."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        pass

    def message(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def summary(self, title: str, lines: Iterable[str]) -> None:
        rule = "-" * _WIDTH
        self.message("\n".join([rule, title, *[f"  {line}" for line in lines], rule]))


class PlainConsole(OffConsole):
    """One line per `interval_s` seconds: for logs, pipes and batch systems. The last update is always shown."""

    def __init__(
        self,
        stream: TextIO,
        total_env_steps: int,
        total_updates: int,
        interval_s: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(stream)
        self._totals = (total_env_steps, total_updates)
        self._interval_s, self._clock = interval_s, clock
        self._last_print = -math.inf
        self._pending: str | None = None

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        self._pending = _LINE.format(**_fields(env_steps, update, elapsed_s, metrics, *self._totals))
        if self._clock() - self._last_print >= self._interval_s:
            self.close()

    def summary(self, title: str, lines: Iterable[str]) -> None:
        self.close()
        super().summary(title, lines)

    def close(self) -> None:
        """Show the last update, unless that has been done."""
        if self._pending is not None:
            self.message(self._pending)
            self._pending, self._last_print = None, self._clock()


class RichPanel(ConsoleSink):
    """A live panel that is redrawn in place. It draws in the caller's thread only, a few times a second at most."""

    def __init__(
        self,
        console: RichConsole,
        title: str,
        total_env_steps: int,
        total_updates: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console, self._title, self._clock = console, title, clock
        self._totals = (total_env_steps, total_updates)
        self._live = Live(console=console, auto_refresh=False)
        self._last_draw = -math.inf
        self._pending: Panel | None = None
        self._open = True

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        fields = _fields(env_steps, update, elapsed_s, metrics, *self._totals)
        self._pending = _panel(self._title, fields, env_steps, self._totals[0])
        if self._open and self._clock() - self._last_draw >= _REFRESH_S:
            self._live.start()  # at the first row, so that what is said before it stays above; later calls do nothing
            self._live.update(self._pending, refresh=True)
            self._last_draw = self._clock()

    def message(self, text: str) -> None:
        self._console.print(Text(text, overflow="fold"))  # print's own options would also redraw the panel with them

    def summary(self, title: str, lines: Iterable[str]) -> None:
        self.close()
        self._console.print(Panel(Text("\n".join(lines), overflow="fold"), title=Text(title), title_align="left"))

    def close(self) -> None:
        if self._open and self._pending is not None:
            self._live.update(self._pending)
        self._open = False
        self._live.stop()


def make_console(
    mode: str, title: str, total_env_steps: int, total_updates: int, interval_s: float, stream: TextIO | None = None
) -> ConsoleSink:
    """The console for `mode=auto|rich|plain|off` on `stream` (stdout); auto is rich on a terminal, else plain.

    Colours follow the environment variable NO_COLOR. Raises ValueError on another mode.
    """
    if mode not in MODES:
        raise ValueError(f"console = {mode!r}: must be one of {', '.join(MODES)}.")
    stream = stream if stream is not None else sys.stdout
    if mode == "off":
        return OffConsole(stream)
    terminal = stream.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")
    if mode == "plain" or (mode == "auto" and not terminal):
        return PlainConsole(stream, total_env_steps, total_updates, interval_s)
    # Asked for by name, the panel is drawn even where it is not known to work.
    console = RichConsole(file=stream, force_terminal=True if mode == "rich" else None)
    return RichPanel(console, title, total_env_steps, total_updates)


def _panel(title: str, fields: dict[str, str], env_steps: int, total: int) -> Panel:
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(ratio=1)
    head.add_column(justify="right", no_wrap=True)
    bar = ProgressBar(total=max(total, 1), completed=min(env_steps, max(total, 1)))
    head.add_row(bar, Text.assemble((fields["percent"], "bold"), "  ETA ", (fields["eta"], "bold")))
    body = Table.grid(expand=True, padding=(0, 1), pad_edge=False)
    for ratio in (3, 2, 2):
        body.add_column(style="dim", no_wrap=True)
        body.add_column(no_wrap=True, ratio=ratio)
    for row in _ROWS:
        body.add_row(*[Text(cell) for label, key in row for cell in (label, fields[key])])
    return Panel(Group(head, body), title=Text(title), title_align="left", width=_WIDTH, border_style="cyan")


_ROWS = (
    (("step", "step"), ("reward", "reward"), ("lag mean", "lag_mean")),
    (("FPS 10 s", "fps10"), ("episode length", "length"), ("lag max", "lag_max")),
    (("FPS 60 s", "fps60"), ("KL", "kl"), ("policy idle", "idle_policy")),
    (("FPS 300 s", "fps300"), ("LR", "lr"), ("learner idle", "idle_learner")),
    (("elapsed", "elapsed"), ("update", "update"), ("NaN resets", "nan_envs")),
)


def _fields(
    env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float], total_steps: int, total_updates: int
) -> dict[str, str]:
    """Every field as text; what is not known yet is a dash."""

    def show(key: str, form: Callable[[float], str]) -> str:
        value = metrics.get(key, math.nan)
        return form(value) if math.isfinite(value) else "-"

    fps = metrics.get("fps/60s", 0.0)
    return {
        "percent": f"{100.0 * env_steps / total_steps:.1f} %" if total_steps else "-",
        "step": _count(env_steps) + (f"/{_count(total_steps)}" if total_steps else ""),
        "update": f"{update}" + (f"/{total_updates}" if total_updates else ""),
        "eta": _duration((total_steps - env_steps) / fps) if fps > 0.0 and total_steps > env_steps else "-",
        "elapsed": _duration(elapsed_s),
        **{f"fps{window}": show(f"fps/{window}s", _count) for window in (10, 60, 300)},
        "reward": show("rewards/step", "{:.2f}".format),
        "length": show("episode_lengths/step", "{:.1f}".format),
        "kl": show("info/kl", "{:.4f}".format),
        "lr": show("info/last_lr", "{:.1e}".format),
        "lag_mean": show("lag/mean", "{:.2f}".format),
        "lag_max": show("lag/max", "{:.0f}".format),
        "idle_policy": show("idle/policy", "{:.0%}".format),
        "idle_learner": show("idle/learner", "{:.0%}".format),
        "nan_envs": show("nan_envs", "{:.0f}".format),
    }


def _count(value: float) -> str:
    for unit, size, digits in (("G", 1e9, 2), ("M", 1e6, 2), ("k", 1e3, 1)):
        if value >= size:
            return f"{value / size:.{digits}f}{unit}"
    return f"{value:.0f}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
