"""Weights & Biases, at arm's length: a thread does every call, so that an outage never reaches the training loop.

The producer only appends to a bounded queue. Where a call raises, or does not return in time, the run goes on offline
in a new thread, with what was queued; where that fails too, W&B is off. metrics.csv has every row in any case. When the
queue is full its oldest entry goes, as the newest are what a curve is watched for.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import os
import secrets
import signal
import threading
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any, Callable, Deque, Dict, Iterator, List, NamedTuple, Optional, Tuple

from isaac_appo.config import RunConfig
from isaac_appo.config.errors import ConfigError, Finding
from isaac_appo.report.run_dir import RunDir
from isaac_appo.report.scrub import scrub
from isaac_appo.report.sink import Sink

QUEUE = 2048
"""Entries that may wait, about 6 KB each."""
INIT_TIMEOUT_S = 60.0
"""How long the library may try to reach its server; then it raises."""
PATIENCE_S = 90.0
"""A call that has not returned by then is given up."""
FLUSH_S = 1.0
"""How much of a run file a killed service may lose, where the library can be told."""
CLOSE_S = 30.0
"""How long the end of a run waits for a W&B run to finish; twice that if it falls back at the end."""

Say = Callable[[str], None]
Job = Callable[[Any], None]


class WandbOptions(NamedTuple):
    """What a W&B run is told about itself."""

    mode: str
    project: str
    entity: str
    group: str
    name: str
    tags: List[str]
    code_dir: str
    artifacts: bool
    config: Dict[str, Any]


def wandb_options(config: RunConfig) -> Optional[WandbOptions]:
    """The options that `config` asks for, secrets scrubbed, or None. Raises ConfigError if they cannot be met."""
    if config.wandb == "disabled":
        return None
    found = importlib.util.find_spec("wandb")
    if found is None or found.origin is None:  # without origin: a folder wandb/ here, as W&B makes them
        fix = "Install it: pip install 'isaac-appo[wandb]', or use wandb=disabled"
        raise ConfigError([Finding("wandb", config.wandb, "the package wandb is not installed", fix)])
    if config.wandb_logcode_dir and not Path(config.wandb_logcode_dir).is_dir():
        fix = "Name the folder whose code is to be stored, or leave it out"
        raise ConfigError([Finding("wandb_logcode_dir", config.wandb_logcode_dir, "no such folder", fix)])
    name = config.wandb_name or f"{config.task.name}-{config.experiment or 'default'}-s{config.seed}"
    where = (config.wandb, config.wandb_project, config.wandb_entity, config.wandb_group)
    tags, code, artifacts = [str(tag) for tag in config.wandb_tags], config.wandb_logcode_dir, config.wandb_artifacts
    return WandbOptions(*where, name, tags, code, artifacts, scrub(asdict(config)))


class WandbSink(Sink):
    """One W&B run for one run directory: its id is kept in run.json, so that a resumed run continues it.

    All metrics are drawn against `env_steps`, an axis of the run's own: W&B drops what is logged at a lower step than
    before, which is where a run resumed from a checkpoint begins. No method waits, except `close`.
    """

    def __init__(
        self, options: WandbOptions, run_dir: RunDir, say: Say, warn: Say, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.options, self.folder, self.clock, self.say, self.warn = options, run_dir.path, clock, say, warn
        # A sweep's agent has chosen the id of the run that it starts
        self.id = os.environ.get("WANDB_RUN_ID") or run_dir.read_run_json().get("wandb_id") or secrets.token_hex(4)
        run_dir.write_run_json(wandb_id=self.id)
        self.queue = _Queue()
        self._worker: Optional[_Worker] = None
        self._reset: Optional[threading.Thread] = None
        self._start()

    def write(self, env_steps: int, update: int, elapsed_s: float, metrics: Dict[str, float]) -> None:
        axes = {"env_steps": env_steps, "update": update, "elapsed_s": elapsed_s}
        row = {**axes, **{key: value for key, value in metrics.items() if not math.isnan(value)}}
        self._submit(lambda run: run.log(row))

    def video(self, path: Path, env_steps: int) -> None:
        if self.options.artifacts:
            self._submit(lambda run: _log_video(run, path, env_steps))

    def artifact(self, path: Path) -> None:
        if self.options.artifacts:
            self._submit(lambda run: _log_artifact(run, path))

    def close(self) -> None:
        """Finish the W&B run, waiting CLOSE_S at most for each of the online and the offline one."""
        self._submit(_finish)
        while self._worker is not None:
            worker = self._worker
            worker.join(CLOSE_S)
            worker.tell()
            if worker.error is None and not worker.is_alive():
                break
            reason = worker.error or f"no answer within {CLOSE_S:.0f} s"
            if worker.in_hand is _finish:
                self._give_up(worker)
                self.warn(f"W&B did not finish ({_text(reason)}). {self._how_to_upload()}")
                break
            self._fall_back(worker, reason)
        self._worker = None
        if self._reset is not None:
            self._reset.join(5.0)
        if self.queue.dropped:
            self.warn(f"W&B missed {self.queue.dropped} rows while it was blocked; metrics.csv has them.")

    def _submit(self, job: Job) -> None:
        worker = self._worker
        if worker is None:
            return
        self.queue.put(job)
        worker.tell()
        since = worker.since
        if worker.error is not None:
            self._fall_back(worker, worker.error)
        elif since is not None and self.clock() - since > PATIENCE_S:
            self._fall_back(worker, f"no answer for {PATIENCE_S:.0f} s")

    def _start(self, fallback: bool = False) -> None:
        self._worker = _Worker(self, fallback)
        self._worker.start()

    def _fall_back(self, worker: _Worker, reason: object) -> None:
        if worker.fallback:
            self._give_up(worker)
            text = f"W&B is off for the rest of this run ({_text(reason)}). Training goes on; metrics.csv has all."
        else:
            self.queue.retire(worker)
            self._start(fallback=True)
            text = f"W&B failed ({_text(reason)}). Training goes on, logged offline from here. {self._how_to_upload()}"
        self.warn(text)

    def _give_up(self, worker: _Worker) -> None:
        self.queue.retire(worker)
        self._worker = None
        # Not here, as it might block too; and not left out, as the interpreter would wait for the service at its end
        self._reset = threading.Thread(target=_reset_service, daemon=True)
        self._reset.start()

    def _how_to_upload(self) -> str:
        return f"Upload it later: wandb sync {self.folder}/wandb/*run-*-{self.id}"


class _Queue:
    """A bounded queue whose consumer may be given up: what it had in hand then goes back to the front."""

    def __init__(self) -> None:
        self._jobs: Deque[Job] = deque()
        self._changed = threading.Condition()
        self.dropped = 0

    def put(self, job: Job) -> None:
        with self._changed:
            if len(self._jobs) >= QUEUE:
                self._jobs.popleft()
                self.dropped += 1
            self._jobs.append(job)
            self._changed.notify()

    def take(self, worker: _Worker) -> Optional[Job]:
        """The next job, once there is one; None when `worker` was given up."""
        with self._changed:
            worker.in_hand = worker.since = None
            while not self._jobs and not worker.retired:
                self._changed.wait()
            if worker.retired:
                return None
            worker.in_hand, worker.since = self._jobs.popleft(), worker.sink.clock()
            return worker.in_hand

    def retire(self, worker: _Worker) -> None:
        with self._changed:
            worker.retired = True
            if worker.in_hand is not None:
                self._jobs.appendleft(worker.in_hand)
            self._changed.notify_all()


class _Worker(threading.Thread):
    """Opens one W&B run and does the jobs in order; a call that raises ends it, with `error` set."""

    def __init__(self, sink: WandbSink, fallback: bool) -> None:
        super().__init__(name="wandb", daemon=True)
        self.sink, self.fallback = sink, fallback
        self.since: Optional[float] = sink.clock()
        self.in_hand: Optional[Job] = None
        self.error: Optional[BaseException] = None
        self.retired = False
        self._news: Deque[Tuple[Say, str]] = deque()

    def run(self) -> None:
        try:
            if self.fallback:
                _reset_service()
            run = self._open()
            job = self.sink.queue.take(self)
            while job is not None:
                try:
                    job(run)
                except _FileError as error:
                    self._news.append((self.sink.warn, str(error)))
                job = None if job is _finish else self.sink.queue.take(self)
            refusal = "" if self.retired else _refusal(Path(run.dir).parent / "logs" / "debug-internal.log")
            if refusal:
                self._news.append((self.sink.warn, f"W&B refused rows ({refusal}). {self.sink._how_to_upload()}"))
        except BaseException as error:  # the library's (it also calls sys.exit), the network's, the disk's
            self.error = error

    def tell(self) -> None:
        """Say the news in the caller's thread: the reporter may hold its lock while it waits for this one."""
        while self._news:
            say, text = self._news.popleft()
            say(text)

    def _open(self) -> Any:
        import wandb

        o, sink = self.sink.options, self.sink
        settings: Dict[str, Any] = {"silent": True, "console": "off", "init_timeout": INIT_TIMEOUT_S}
        settings.update(disable_git=True, x_disable_meta=True)  # meta: the command line, which nothing has scrubbed
        if "x_transaction_log_flush_interval" in getattr(wandb.Settings, "model_fields", ()):  # not in every version
            settings["x_transaction_log_flush_interval"] = FLUSH_S
        wandb.setup(wandb.Settings(silent=True))  # it would ask for a key on the terminal, and draw over the console
        run = wandb.init(
            project=o.project,
            entity=o.entity or None,
            group=o.group or None,
            name=o.name,
            tags=o.tags,
            id=sink.id,
            resume="allow",
            config=o.config,
            allow_val_change=True,
            dir=str(sink.folder),
            # Asked to be online, the library may still be told WANDB_MODE=offline, as on a cluster's compute nodes
            mode=None if o.mode == "online" and not self.fallback else "offline",
            reinit="create_new",
            save_code=False,
            settings=settings,
        )
        run.define_metric("*", step_metric="env_steps")
        if o.code_dir:
            run.log_code(o.code_dir)
        if not self.fallback:
            place = run.url or f"offline. Upload it later: wandb sync {Path(run.dir).parent}"
            self._news.append((sink.say, f"W&B: {place}"))
        return run


class _FileError(Exception):
    """A file was not taken; the run itself is well."""


@contextlib.contextmanager
def _taking(file: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise _FileError(f"W&B did not take the {file}: {error}. Training goes on.") from error


def _text(reason: object) -> str:
    return f"{type(reason).__name__}: {reason}" if isinstance(reason, BaseException) else str(reason)


def _finish(run: Any) -> None:
    run.finish()


def _refusal(log: Path) -> str:
    """Why the server took no more rows, by the service's own log: the library itself ends as if all had gone well."""
    fatal = "filestream: fatal error: "
    with contextlib.suppress(OSError, ValueError, KeyError):  # no log, or one of another form: nothing is known
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines():
            if fatal in line:
                return str(json.loads(line)["msg"]).partition(fatal)[2]
    return ""


def _log_video(run: Any, path: Path, env_steps: int) -> None:
    import wandb

    with _taking(f"video {path}"):
        video = wandb.Video(str(path))
    run.log({"env_steps": env_steps, "video": video})


def _log_artifact(run: Any, path: Path) -> None:
    import wandb

    artifact = wandb.Artifact(f"policy-{run.id}", type="model")
    with _taking(f"file {path}"):
        # Immutable and uncached: uploaded from where it lies, not copied into a folder of the user's home
        artifact.add_file(str(path), policy="immutable", skip_cache=True)
    run.log_artifact(artifact)


def _reset_service() -> None:
    """End the library's service process, with which a stuck call ends too, and let the library forget it."""
    import wandb

    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            name, _, rest = stat.read_text().partition("(")[2].rpartition(")")
            if name == "wandb-core" and int(rest.split()[1]) == os.getpid():
                os.kill(int(stat.parent.name), signal.SIGKILL)
    with contextlib.suppress(Exception, SystemExit):  # it complains that the service has gone, or exits with its code
        wandb.teardown()
