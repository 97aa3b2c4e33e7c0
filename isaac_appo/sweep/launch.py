"""Runs jobs, some at a time, and waits for them; each is a process of its own, so a crash is an exit code.

Jobs here are plain child processes: a signal to the sweep reaches each training once, and its exit code comes back as
it is. On a SLURM cluster the same command runs under submitit, which requeues a run that meets its time limit.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from isaac_appo.sweep.plan import Job

PROGRAM = (sys.executable, "-m", "isaac_appo", "train")
_SHARED = {"timeout_min", "mem_gb", "nodes", "tasks_per_node", "cpus_per_task", "gpus_per_node", "stderr_to_stdout"}
"""Submitit's parameters for any cluster; others are SLURM's."""


def visible_gpus() -> List[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name for name in named.split(",") if name and name != "-1"]
    if shutil.which("nvidia-smi") is None:
        return []
    done = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    count = sum(line.startswith("GPU ") for line in done.stdout.splitlines())
    return [str(i) for i in range(count)]


class LocalLauncher:
    """Child processes of this machine. Slot s has GPU s modulo their number; without GPUs, its share of the cores."""

    def __init__(self, slots: int, gpus: Sequence[str], program: Sequence[str] = PROGRAM) -> None:
        self.slots, self.program = slots, list(program)
        self._gpus = list(gpus)

    def start(self, job: Job, slot: int, log: Path) -> subprocess.Popen[bytes]:
        environment = dict(os.environ)
        if self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self._gpus[slot % len(self._gpus)]
        with open(log, "ab") as file:
            # A session of its own: Ctrl-C reaches the sweep alone, which passes it on.
            process = subprocess.Popen(
                [*self.program, *job.words], stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
                env=environment, start_new_session=True,
            )  # fmt: skip
        if not self._gpus and hasattr(os, "sched_setaffinity"):
            _restrict(process.pid, slot, self.slots)
        return process


def _restrict(pid: int, slot: int, slots: int) -> None:
    """Give a process its share of the cores, so that its thread budgets are those of its own share."""
    cores = sorted(os.sched_getaffinity(0))
    share = cores[slot * len(cores) // slots : (slot + 1) * len(cores) // slots]
    if share:
        os.sched_setaffinity(pid, share)


class SubmititLauncher:
    """Jobs of a cluster by submitit, or of submitit's own local executor. Raises ValueError for a wrong parameter."""

    def __init__(
        self, folder: Path, cluster: str, params: Dict[str, Any], slots: int, program: Sequence[str] = PROGRAM
    ) -> None:
        import submitit

        self.slots, self.program = slots, list(program)
        self._executor = submitit.AutoExecutor(folder=folder, cluster=cluster)
        named = {key if key in _SHARED or "slurm_" in key else f"slurm_{key}": v for key, v in params.items()}
        try:
            self._executor.update_parameters(**{"timeout_min": 24 * 60, "name": "isaac-appo", **named})
        except (NameError, TypeError, AssertionError) as error:
            raise ValueError(f"hydra.launcher: {error}") from error

    def start(self, job: Job, slot: int, log: Path) -> _Submitted:
        return _Submitted(self._executor.submit(TrainCommand(), [*self.program, *job.words], str(log)))


class _Submitted:
    """A job of submitit, to be asked and stopped as a `Popen` is."""

    def __init__(self, job: Any) -> None:
        self._job = job

    def poll(self) -> Optional[int]:
        if not self._job.done():
            return None
        return int(self._job.result()) if self._job.exception() is None else 1

    def send_signal(self, number: int) -> None:
        self._job.cancel(check=False)


class TrainCommand:
    """What submitit runs on the cluster: a training, started again by the same words after a time-out."""

    _child: Optional[subprocess.Popen[bytes]] = None

    def __call__(self, command: List[str], log: str) -> int:
        with open(log, "ab") as file:
            self._child = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)
        try:
            return self._wait()
        except KeyboardInterrupt:
            self._child.send_signal(signal.SIGINT)
            return self._wait()

    def checkpoint(self, command: List[str], log: str) -> Any:
        """Called in a signal handler, shortly before the time limit: the training saves, and resumes when requeued."""
        import submitit

        if self._child is not None:
            self._child.terminate()
            self._wait()
        return submitit.helpers.DelayedSubmission(TrainCommand(), command, log)

    def _wait(self) -> int:
        assert self._child is not None
        while self._child.poll() is None:  # not wait(): a handler that waits inside it would wait for ever
            time.sleep(0.2)
        return int(self._child.returncode)


def run_jobs(
    jobs: Iterator[Job],
    launcher: Any,
    log_of: Callable[[Job], Path],
    on_start: Callable[[Job, int], None],
    on_end: Callable[[Job, int, float], None],
    poll_s: float = 0.1,
) -> bool:
    """Run every job, `launcher.slots` at a time; a job is drawn when a slot is free. False if it was interrupted.

    `on_end` is told its exit code, negative for the signal that killed it, and how many seconds it took.
    Ctrl-C and SIGTERM stop all of them: each training saves a checkpoint and ends; a second one kills them.
    """
    live: Dict[int, Tuple[Job, Any, float]] = {}

    def wait() -> None:
        for slot, (job, handle, started) in list(live.items()):
            code = handle.poll()
            if code is not None:
                del live[slot]
                on_end(job, code, time.monotonic() - started)
        time.sleep(poll_s)

    def stop(number: int, drain: bool = True) -> None:
        for _, handle, _ in live.values():
            handle.send_signal(number)
        while drain and live:
            wait()

    # Ctrl-C as well: a shell that starts the sweep in the background has it ignored.
    previous = {number: signal.signal(number, _interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        while True:
            for slot in range(launcher.slots):
                job = None if slot in live else next(jobs, None)
                if job is not None:
                    live[slot] = (job, launcher.start(job, slot, log_of(job)), time.monotonic())
                    on_start(job, slot)
            if not live:
                return True
            wait()
    except KeyboardInterrupt:
        try:
            stop(signal.SIGINT)
        except KeyboardInterrupt:
            stop(signal.SIGKILL)
        return False
    except BaseException:
        stop(signal.SIGTERM, drain=False)
        raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _interrupt(number: int, frame: Any) -> None:
    raise KeyboardInterrupt
