"""Watching over a run from within: signals that stop it cleanly, a watchdog against hangs, the exit codes."""

from __future__ import annotations

import faulthandler
import os
import signal
import threading
import time
from pathlib import Path
from types import FrameType
from typing import Any, Callable

EXIT_HANG = 75
"""A stream stood still beyond its deadline."""
EXIT_SIGINT = 130
EXIT_SIGTERM = 143

_CODES = {signal.SIGINT: EXIT_SIGINT, signal.SIGTERM: EXIT_SIGTERM}
_SHOW_CURSOR = b"\x1b[?25h"


class SignalGuard:
    """While open, the first SIGINT or SIGTERM only sets `stop_requested`: the loop saves and leaves at a safe point.

    The second one ends the process at once with the signal's exit code, stating what `last_checkpoint()` returns.
    For the main thread only (RuntimeError elsewhere), as Python delivers signals nowhere else.
    """

    stop_requested: bool
    exit_code: int
    """0 until a signal came, then 130 (SIGINT) or 143 (SIGTERM)."""

    def __init__(self, last_checkpoint: Callable[[], object] = lambda: None) -> None:
        self.stop_requested, self.exit_code = False, 0
        self._last_checkpoint = last_checkpoint
        self._former: dict[int, Any] = {}

    def __enter__(self) -> SignalGuard:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("SignalGuard was opened outside the main thread; open it where the program starts.")
        for number in _CODES:
            self._former[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._former.items():
            # None: installed by other than Python, hence not restorable; the default is the nearest.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if not self.stop_requested:
            self.stop_requested, self.exit_code = True, _CODES[signal.Signals(number)]
            return
        code = _CODES[signal.Signals(number)]
        text = f"\nSecond {signal.Signals(number).name}: stopped at once. Last checkpoint: {self._last_checkpoint()}\n"
        # Raw writes: the buffered streams may be locked by the very code that was interrupted.
        os.write(2, (_SHOW_CURSOR if os.isatty(2) else b"") + text.encode("utf-8", "replace"))
        os._exit(code)


class Watchdog:
    """Calls for help once when a stage has been silent for too long: all tracebacks to `log_txt`, then `on_hang`.

    A stage is known from its first `beat` on, and has `deadline_s` between beats. Time in which the whole process slept
    (SIGSTOP, a suspended machine) does not count. `on_hang(text)` runs on the watchdog's thread; text names the stage.

    beat() reads one attribute and writes one dict entry: no lock, no clock. Stamped with the last poll, so silence is
    measured to within `poll_s`.
    """

    def __init__(
        self,
        log_txt: Path,
        on_hang: Callable[[str], None],
        deadline_s: float = 300.0,
        poll_s: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log_txt, self._on_hang = log_txt, on_hang
        self._deadline_s, self._poll_s, self._clock = deadline_s, poll_s, clock
        self._polled = clock()
        self._awake = 0.0  # seconds this process was awake, advanced by each poll: the time that beats are stamped with
        self._beats: dict[str, float] = {}
        self._fired = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)

    def beat(self, stage: str) -> None:
        """Say that `stage` is alive."""
        self._beats[stage] = self._awake

    def check(self) -> None:
        """Advance the clock; at the first overdue stage, and once only, dump and call `on_hang`."""
        now = self._clock()
        self._awake += min(now - self._polled, 2.0 * self._poll_s)
        self._polled = now
        # copy: atomic, unlike iterating over a dict that streams write to
        silent = {stage: self._awake - beat for stage, beat in self._beats.copy().items()}
        late = [stage for stage in silent if silent[stage] > self._deadline_s]
        if not late or self._fired:
            return
        self._fired = True
        limit = f"deadline {self._deadline_s:.0f} s"
        text = f"{late[0]} has been silent for {silent[late[0]]:.0f} s ({limit}): taken for hung."
        try:
            with open(self._log_txt, "a", encoding="utf-8") as file:
                file.write(f"{text} All threads:\n")
                file.flush()
                faulthandler.dump_traceback(file=file, all_threads=True)
        finally:
            self._on_hang(text)

    def __enter__(self) -> Watchdog:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._thread is not threading.current_thread():
            self._thread.join(timeout=2.0 * self._poll_s)

    def _watch(self) -> None:
        while not self._stop.wait(self._poll_s):
            self.check()
