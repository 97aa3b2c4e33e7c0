from __future__ import annotations

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from isaac_appo.supervision import EXIT_HANG, EXIT_SIGINT, EXIT_SIGTERM, SignalGuard, Watchdog

CHILD = """
import sys, time
from isaac_appo.supervision import SignalGuard
with SignalGuard(lambda: "ckpt_7.pth") as guard:
    print("ready", flush=True)
    while not guard.stop_requested:
        time.sleep(0.01)
    print("stopping", flush=True)
    while "stubborn" in sys.argv:
        time.sleep(0.01)
sys.exit(guard.exit_code)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    return child


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, EXIT_SIGINT), (signal.SIGTERM, EXIT_SIGTERM)])
def test_first_signal_asks_the_loop_to_leave(number: signal.Signals, code: int) -> None:
    child = start()
    child.send_signal(number)
    output, errors = child.communicate(timeout=20)
    assert (child.returncode, output, errors) == (code, "stopping\n", "")


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [(signal.SIGINT, signal.SIGINT, 130), (signal.SIGINT, signal.SIGTERM, 143), (signal.SIGTERM, signal.SIGTERM, 143)],
)
def test_second_signal_ends_at_once_and_names_the_checkpoint(
    first: signal.Signals, second: signal.Signals, code: int
) -> None:
    child = start("stubborn")
    child.send_signal(first)
    assert child.stdout is not None and child.stdout.readline() == "stopping\n"
    child.send_signal(second)
    errors = child.communicate(timeout=20)[1]
    assert child.returncode == code
    assert errors == f"\nSecond {second.name}: stopped at once. Last checkpoint: ckpt_7.pth\n"


def test_handlers_are_restored_even_after_an_error() -> None:
    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyError), SignalGuard() as guard:
        assert signal.getsignal(signal.SIGINT) != before[0] and signal.getsignal(signal.SIGTERM) != before[1]
        assert not guard.stop_requested and guard.exit_code == 0
        raise KeyError
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_guard_is_for_the_main_thread() -> None:
    errors: list[str] = []

    def enter() -> None:
        try:
            SignalGuard().__enter__()
        except RuntimeError as error:
            errors.append(str(error))

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert len(errors) == 1 and "main thread" in errors[0]


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Scene:
    """A watchdog on an injected clock that is polled by hand, once a second."""

    def __init__(self, tmp_path: Path) -> None:
        self.clock, self.log, self.calls = Clock(), tmp_path / "log.txt", []  # type: ignore[var-annotated]
        self.dog = Watchdog(self.log, self.calls.append, deadline_s=30.0, clock=self.clock)

    def sleep(self, seconds: int, *beating: str) -> None:
        for _second in range(seconds):
            self.clock.now += 1.0
            for stage in beating:
                self.dog.beat(stage)
            self.dog.check()


def test_silence_beyond_the_deadline_dumps_and_calls_once(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.sleep(50, "step", "update")
    scene.sleep(29, "update")
    assert scene.calls == []
    scene.sleep(1, "update")
    assert scene.calls == ["step has been silent for 31 s (deadline 30 s): taken for hung."]
    scene.sleep(100)
    assert len(scene.calls) == 1
    text = scene.log.read_text()
    assert scene.calls[0] in text and "most recent call first" in text and "test_supervision.py" in text


def test_time_in_which_the_whole_process_slept_does_not_count(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.sleep(5, "step")
    scene.clock.now += 10_000.0
    scene.sleep(10, "step")
    assert scene.calls == []


def test_callback_comes_even_if_the_log_cannot_be_written(tmp_path: Path) -> None:
    scene = Scene(tmp_path)
    scene.dog._log_txt = tmp_path / "missing" / "log.txt"
    scene.sleep(5, "step")
    with pytest.raises(FileNotFoundError):
        scene.sleep(40)
    assert len(scene.calls) == 1


def test_thread_finds_a_hang_in_a_real_process(tmp_path: Path) -> None:
    script = """
import os, sys, time
from isaac_appo.supervision import EXIT_HANG, Watchdog
from pathlib import Path
def hang(text):
    print(text, flush=True)
    os._exit(EXIT_HANG)
with Watchdog(Path(sys.argv[1]), hang, deadline_s=0.2, poll_s=0.02) as dog:
    dog.beat("update")
    def the_culprit():
        time.sleep(60)
    the_culprit()
"""
    log = tmp_path / "log.txt"
    done = subprocess.run([sys.executable, "-c", script, str(log)], capture_output=True, text=True, timeout=30)
    assert done.returncode == EXIT_HANG
    assert done.stdout.startswith("update has been silent")
    assert "the_culprit" in log.read_text()
