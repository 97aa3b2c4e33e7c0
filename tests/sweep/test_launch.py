"""Launching, with small programs in the place of a training."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any, Dict, Iterator, List, Optional

import pytest

from isaac_appo.sweep import launch
from isaac_appo.sweep.launch import LocalLauncher, SubmititLauncher, run_jobs, visible_gpus
from isaac_appo.sweep.plan import Job


def jobs(*words: str) -> Iterator[Job]:
    return (Job(i + 1, [word], {}, Path()) for i, word in enumerate(words))


def run(found: Iterator[Job], launcher: Any, folder: Path, on_start: Any = lambda job, slot: None) -> Any:
    codes: Dict[int, int] = {}

    def on_end(job: Job, code: int, seconds: float) -> None:
        codes[job.number] = code

    finished = run_jobs(found, launcher, lambda job: folder / f"{job.number}.log", on_start, on_end, 0.02)
    return finished, codes


def program(code: str) -> List[str]:
    return [sys.executable, "-c", f"import os, signal, sys, time; word = sys.argv[1]; {code}"]


def test_exit_codes_come_back_as_they_are_and_output_is_logged(tmp_path: Path) -> None:
    launcher = LocalLauncher(2, [], program("print('said', word, flush=True); exec(word)"))
    words = ["pass", "sys.exit(3)", "os.kill(os.getpid(), signal.SIGSEGV)"]
    assert run(jobs(*words), launcher, tmp_path) == (True, {1: 0, 2: 3, 3: -signal.SIGSEGV})
    assert (tmp_path / "2.log").read_text() == "said sys.exit(3)\n"


def test_gpus_are_dealt_to_the_slots_in_turn(tmp_path: Path) -> None:
    launcher = LocalLauncher(3, ["4", "7"], program("print(os.environ['CUDA_VISIBLE_DEVICES'])"))
    slots: Dict[int, int] = {}
    run(jobs("a", "b", "c"), launcher, tmp_path, lambda job, slot: slots.update({job.number: slot}))
    assert [slots[1], slots[2], slots[3]] == [0, 1, 2]
    assert [(tmp_path / f"{i}.log").read_text().strip() for i in (1, 2, 3)] == ["4", "7", "4"]


def test_without_gpus_a_slot_has_its_share_of_the_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 1, 2, 3, 6})
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: seen.append((pid, cores)))
    for slot in range(2):
        launch._restrict(9, slot, 2)
    launch._restrict(9, 0, 8)  # more slots than cores: no share, no restriction
    assert seen == [(9, [0, 1]), (9, [2, 3, 6])]


@pytest.mark.parametrize(("named", "gpus"), [("0,1", ["0", "1"]), ("", []), ("-1", []), ("GPU-ab", ["GPU-ab"])])
def test_visible_gpus_are_those_named(named: str, gpus: List[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert visible_gpus() == gpus


class Counting:
    """A launcher whose jobs end after three polls; counts how many are alive."""

    def __init__(self, slots: int) -> None:
        self.slots, self.alive, self.most = slots, 0, 0
        self.slots_in_use: List[int] = []

    def start(self, job: Job, slot: int, log: Path) -> Any:
        assert slot not in self.slots_in_use
        self.slots_in_use.append(slot)
        self.alive += 1
        self.most = max(self.most, self.alive)
        return Polled(self, slot)


class Polled:
    def __init__(self, owner: Counting, slot: int) -> None:
        self.owner, self.slot, self.left = owner, slot, 3

    def poll(self) -> Optional[int]:
        self.left -= 1
        if self.left:
            return None
        self.owner.alive -= 1
        self.owner.slots_in_use.remove(self.slot)
        return 0


def test_no_more_than_the_slots_run_and_a_job_is_drawn_when_one_is_free(tmp_path: Path) -> None:
    launcher, drawn = Counting(2), []

    def lazy() -> Iterator[Job]:
        for job in jobs(*"abcde"):
            drawn.append(launcher.alive)
            yield job

    finished, codes = run(lazy(), launcher, tmp_path)
    assert finished and len(codes) == 5 and launcher.most == 2
    assert drawn == [0, 1, 0, 1, 0]


HANDLER = (
    "signal.signal(signal.SIGINT, lambda *_: (time.sleep(0.1), print('saved', flush=True), sys.exit(130))); "
    "print('ready', flush=True); time.sleep(60)"
)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_every_job_after_it_has_saved(tmp_path: Path, number: int) -> None:
    def interrupt(job: Job, slot: int) -> None:
        if job.number == 2:
            logs = [tmp_path / "1.log", tmp_path / "2.log"]
            while not all(log.exists() and "ready" in log.read_text() for log in logs):
                time.sleep(0.02)
            os.kill(os.getpid(), number)

    before = signal.signal(number, signal.SIG_IGN)  # as in a shell's background
    finished, codes = run(jobs("a", "b", "c"), LocalLauncher(2, [], program(HANDLER)), tmp_path, interrupt)
    assert not finished and codes == {1: 130, 2: 130}  # and 3 was never started
    assert all("saved" in (tmp_path / f"{i}.log").read_text() for i in (1, 2))
    assert signal.signal(number, before) == signal.SIG_IGN


def test_an_error_of_the_sweep_itself_leaves_no_job_behind(tmp_path: Path) -> None:
    launcher = LocalLauncher(2, [], program("time.sleep(60)"))
    started: List[Any] = []
    start = launcher.start
    launcher.start = lambda *a: started.append(start(*a)) or started[-1]  # type: ignore[method-assign]

    def failing() -> Iterator[Job]:
        yield from jobs("a")
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        run(failing(), launcher, tmp_path)
    assert started[0].wait(timeout=60) == -signal.SIGTERM


def test_submitit_runs_the_same_command_and_returns_its_exit_code(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    launcher = SubmititLauncher(tmp_path / "submitit", "local", {}, 1, program("print('said', word); sys.exit(3)"))
    assert run(jobs("a"), launcher, tmp_path) == (True, {1: 3})
    assert (tmp_path / "1.log").read_text() == "said a\n"


def test_parameters_of_the_cluster_reach_submitit_and_wrong_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    submitit = pytest.importorskip("submitit")
    seen: Dict[str, Any] = {}
    monkeypatch.setattr(submitit.AutoExecutor, "__init__", lambda self, folder, cluster: seen.update(cluster=cluster))
    monkeypatch.setattr(submitit.AutoExecutor, "update_parameters", lambda self, **params: seen.update(params))
    SubmititLauncher(Path("x"), "slurm", {"partition": "gpu", "gpus_per_node": 1, "timeout_min": 60}, 4)
    assert seen["slurm_partition"] == "gpu" and seen["gpus_per_node"] == 1 and seen["timeout_min"] == 60
    assert seen["cluster"] == "slurm"


def test_a_wrong_parameter_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    with pytest.raises(ValueError, match="slurm_partitoin"):
        SubmititLauncher(tmp_path, "local", {"partitoin": "gpu"}, 1)


def test_a_time_limit_stops_the_training_and_asks_for_the_same_again(tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    train, log = launch.TrainCommand(), tmp_path / "log"
    command = program("print('ready', flush=True); time.sleep(60)")

    def near_the_limit(*_: Any) -> None:
        again.append(train.checkpoint([*command, "a"], str(log)))

    again: List[Any] = []
    previous = signal.signal(signal.SIGALRM, near_the_limit)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.5)
        assert train([*command, "a"], str(log)) == -signal.SIGTERM
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert again[0].args == ([*command, "a"], str(log)) and isinstance(again[0].function, launch.TrainCommand)
