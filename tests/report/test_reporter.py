from __future__ import annotations

import csv
import errno
import io
import json
from pathlib import Path
from typing import Iterator

import pytest

from isaac_appo.report.csv import CsvSink
from isaac_appo.report.reporter import Reporter, Start
from isaac_appo.report.run_dir import RunDir


class Clock:
    now = 10.0

    def __call__(self) -> float:
        return self.now


class BrokenPipe(io.StringIO):
    def write(self, text: str) -> int:
        raise BrokenPipeError(errno.EPIPE, "broken pipe")


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Iterator[RunDir]:
    run = RunDir.create(tmp_path, "Ant", "", 1)
    run.prepare("auto")
    yield run
    run.close("done", 0)


NEW = Start()


def reporter(run: RunDir, stream: io.StringIO, clock: Clock, start: Start = NEW) -> Reporter:
    return Reporter(
        run, 1000, 10, mode="plain", interval_s=0.0, tensorboard=False, start=start, stream=stream, clock=clock
    )


def rows(run: RunDir) -> list[dict[str, str]]:
    with open(run.metrics_csv, newline="") as file:
        return list(csv.DictReader(file))


def test_every_sink_gets_the_row_with_fps_and_elapsed(run: RunDir) -> None:
    stream, clock = io.StringIO(), Clock()
    with Reporter(run, 1000, 10, mode="plain", interval_s=0.0, stream=stream, clock=clock) as report:
        clock.now += 2.0
        report.log(1, 100, {"rewards/step": 3.5})
    row = rows(run)[0]
    assert (row["update"], row["env_steps"], float(row["elapsed_s"])) == ("1", "100", 2.0)
    assert float(row["fps/10s"]) == 50.0 and float(row["rewards/step"]) == 3.5
    assert "reward 3.50" in stream.getvalue() and "FPS 50/50/50" in stream.getvalue()
    assert list(run.tensorboard.glob("events.out.tfevents.*"))
    assert json.loads(run.heartbeat_json.read_text())["env_steps"] == 100


def test_resumed_run_goes_on_counting(run: RunDir) -> None:
    stream, clock = io.StringIO(), Clock()
    with reporter(run, stream, clock) as report:
        for update in (1, 2, 3):
            clock.now += 1.0
            report.log(update, update * 100, {})
        assert report.elapsed_s == 3.0
    with reporter(run, stream, clock, Start(update=2, env_steps=200, elapsed_s=2.0)) as report:
        clock.now += 4.0
        report.log(3, 300, {})
    assert [(row["update"], float(row["elapsed_s"])) for row in rows(run)] == [("1", 1.0), ("2", 2.0), ("3", 6.0)]
    assert float(rows(run)[-1]["fps/10s"]) == 25.0


def test_a_sink_that_fails_is_switched_off_with_one_warning(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    stream, calls = io.StringIO(), []

    def fail(self: CsvSink, env_steps: int, update: int, elapsed_s: float, metrics: dict[str, float]) -> None:
        calls.append(update)
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(CsvSink, "write", fail)
    with reporter(run, stream, Clock()) as report:
        for update in (1, 2, 3):
            report.log(update, update, {"rewards/step": float(update)})
    assert calls == [1]
    assert stream.getvalue().count("WARNING: metrics.csv is off for the rest of this run") == 1
    assert stream.getvalue().count("reward 3.00") == 1
    assert run.log_txt.read_text().count("metrics.csv is off") == 1


def test_a_sink_that_cannot_be_opened_is_a_warning(run: RunDir) -> None:
    run.metrics_csv.mkdir()
    stream = io.StringIO()
    with reporter(run, stream, Clock()) as report:
        report.log(1, 1, {})
    assert "WARNING: metrics.csv is off, it could not be opened" in stream.getvalue()
    run.metrics_csv.rmdir()


def test_a_closed_pipe_does_not_stop_training(run: RunDir) -> None:
    with reporter(run, BrokenPipe(), Clock()) as report:
        report.message("one")
        report.log(1, 100, {"rewards/step": 2.0})
        report.summary(["two"])
    assert [row["update"] for row in rows(run)] == ["1"]
    log = run.log_txt.read_text()
    assert "one" in log and "two" in log and log.count("the console is gone") == 1


def test_a_full_log_is_one_warning(run: RunDir) -> None:
    run.log_txt.mkdir()
    stream = io.StringIO()
    with reporter(run, stream, Clock()) as report:
        report.message("one")
        report.message("two")
    assert stream.getvalue().count("log.txt is off") == 1 and "one" in stream.getvalue() and "two" in stream.getvalue()
    run.log_txt.rmdir()


def test_message_and_summary_reach_console_and_log(run: RunDir) -> None:
    stream = io.StringIO()
    with reporter(run, stream, Clock()) as report:
        report.warn("lag is high")
        report.summary(["evaluation 2000", "resume with ..."])
    for text in ("WARNING: lag is high", "evaluation 2000", "resume with ..."):
        assert text in stream.getvalue() and text in run.log_txt.read_text()


def test_a_key_without_description_is_pointed_out_once(run: RunDir) -> None:
    stream = io.StringIO()
    with reporter(run, stream, Clock()) as report:
        report.log(1, 1, {"lag/men": 0.0, "Episode/up": 0.0})
        report.log(2, 2, {"lag/men": 0.0})
    assert stream.getvalue().count("not described in METRICS: lag/men.") == 1
