from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Iterator, List

import pytest

from isaac_appo.commands.compose import compose
from isaac_appo.config import ConfigError
from isaac_appo.report import wandb_sink
from isaac_appo.report.run_dir import RunDir
from isaac_appo.report.wandb_sink import WandbOptions, WandbSink, wandb_options
from tests.report.wandb_standins import FakeWandb, WandbServer, logged, records

OPTIONS = WandbOptions("online", "p", "", "", "n", [], "", True, {"seed": 1})
CALLS = ["init", "define_metric", "log", "finish"]


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Sink:
    """A sink on a run directory, and what it said."""

    def __init__(self, run: RunDir, options: WandbOptions = OPTIONS) -> None:
        self.said: List[str] = []
        self.warned: List[str] = []
        self.clock = Clock()
        self.sink = WandbSink(options, run, self.said.append, self.warned.append, self.clock)

    def write(self, *env_steps: int) -> None:
        for step in env_steps:
            self.sink.write(step, step // 100, 1.0, {"rewards/step": float(step), "info/kl": float("nan")})


@pytest.fixture(name="run")
def _run(tmp_path: Path) -> Iterator[RunDir]:
    run = RunDir.create(tmp_path, "Ant", "", 1)
    run.prepare("auto")
    yield run
    run.close("done", 0)


def fake(monkeypatch: pytest.MonkeyPatch, **faults: str) -> FakeWandb:
    """A stand-in with faults such as log_online="raise" or log="block" (in both modes)."""
    module = FakeWandb(lambda call, mode: faults.get(f"{call}_{mode}") or faults.get(call, ""))
    monkeypatch.setitem(sys.modules, "wandb", module)
    monkeypatch.delenv("WANDB_RUN_ID", raising=False)
    return module


def steps(run: Any) -> List[int]:
    return [row["env_steps"] for row in run.rows]


def test_a_healthy_run_gets_every_row_on_its_own_axis(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    module, sink = fake(monkeypatch), Sink(run)
    sink.write(100, 200)
    sink.sink.close()
    (wandb_run,) = module.runs
    row = {"env_steps": 100, "update": 1, "elapsed_s": 1.0, "rewards/step": 100.0}
    assert wandb_run.rows[0] == row and steps(wandb_run) == [100, 200]
    assert wandb_run.metrics == [("*", "env_steps")] and wandb_run.finished
    assert wandb_run.settings["resume"] == "allow" and wandb_run.settings["dir"] == str(run.path)
    assert sink.said == ["W&B: https://wandb.example/run"] and sink.warned == []


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_raises_leads_offline_with_one_warning_and_no_row_lost(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    module, sink = fake(monkeypatch, **{f"{call}_online": "raise"}), Sink(run)
    sink.write(100, 200, 300)
    sink.sink.close()
    holder = module.runs[-1]
    assert steps(holder) == [100, 200, 300]
    assert holder.mode == ("online" if call == "finish" else "offline")
    assert {r.id for r in module.runs} == {run.read_run_json()["wandb_id"]}
    (warning,) = sink.warned
    assert f"ConnectionError: no {call}" in warning and "wandb sync" in warning and module.teardowns == 1


@pytest.mark.parametrize("call", CALLS)
def test_a_call_that_blocks_neither_holds_the_producer_nor_the_end(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr(wandb_sink, "CLOSE_S", 0.2 if call == "finish" else 30.0)
    module, sink = fake(monkeypatch, **{f"{call}_online": "block"}), Sink(run)
    if call == "finish":
        sink.write(100, 200)
    else:
        sink.write(100)
        assert module.entered.wait(30)
        sink.write(200)  # returns, though the consumer is stuck in the call
        assert sink.warned == []
        sink.clock.now += wandb_sink.PATIENCE_S + 1
        sink.write(300)
        assert len(sink.warned) == 1
    sink.sink.close()
    assert not module.release.is_set() and len(sink.warned) == 1 and "no answer" in sink.warned[0]
    assert steps(module.runs[-1]) == ([100, 200] if call == "finish" else [100, 200, 300])
    module.release.set()  # the stuck thread wakes up and has nothing more to say
    assert len(module.runs) <= 3 and len(sink.warned) == 1


def test_a_short_run_whose_start_blocks_ends_offline(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    module, sink = fake(monkeypatch, init_online="block"), Sink(run)
    sink.write(100)
    assert module.entered.wait(30)
    started = module.runs
    monkeypatch.setattr(wandb_sink, "CLOSE_S", 0.2)
    real = WandbSink._start

    def start(self: WandbSink, fallback: bool = False) -> None:
        monkeypatch.setattr(wandb_sink, "CLOSE_S", 30.0)
        real(self, fallback)

    monkeypatch.setattr(WandbSink, "_start", start)
    sink.sink.close()
    assert [(r.mode, steps(r), r.finished) for r in started] == [("offline", [100], True)] and len(sink.warned) == 1
    module.release.set()


@pytest.mark.parametrize("fault", ["raise", "block"])
def test_where_offline_fails_too_it_is_off_and_says_so_once_more(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    monkeypatch.setattr(wandb_sink, "CLOSE_S", 0.2)
    module, sink = fake(monkeypatch, init=fault), Sink(run)
    for step in (100, 200, 300):
        sink.write(step)
    sink.sink.close()
    assert module.runs == [] and len(sink.warned) == 2 and "W&B is off for the rest of this run" in sink.warned[1]
    sink.write(400)
    sink.sink.close()
    assert len(sink.warned) == 2
    module.release.set()


def test_a_full_queue_lets_the_oldest_go_and_counts_them(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_sink, "QUEUE", 3)
    module, sink = fake(monkeypatch, init="block"), Sink(run)
    assert module.entered.wait(30)
    sink.write(100, 200, 300, 400, 500)
    module.release.set()
    while not module.runs or len(module.runs[0].rows) < 3:
        pass
    sink.sink.close()
    assert steps(module.runs[0]) == [300, 400, 500]
    assert sink.warned == ["W&B missed 2 rows while it was blocked; metrics.csv has them."]


def test_a_resumed_run_keeps_its_id_and_a_sweeps_agent_chooses_it(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake(monkeypatch)
    for _ in range(2):
        Sink(run).sink.close()
    monkeypatch.setenv("WANDB_RUN_ID", "agents")
    Sink(run).sink.close()
    first, second, third = (r.id for r in module.runs)
    assert first == second and len(first) == 8 and third == run.read_run_json()["wandb_id"] == "agents"


def test_files_go_up_on_request_and_a_bad_one_is_one_warning(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    module = fake(monkeypatch)
    best = run.path / "best.pth"
    best.write_bytes(b"weights")
    for options in (OPTIONS, OPTIONS._replace(artifacts=False)):
        sink = Sink(run, options)
        sink.sink.video(Path("a.mp4"), 100)
        sink.sink.video(Path("a.txt"), 200)
        sink.sink.artifact(best)
        sink.sink.artifact(run.path / "gone.pth")
        sink.write(300)
        sink.sink.close()
        assert len(sink.warned) == (2 if options.artifacts else 0)
    asked, unasked = module.runs
    assert asked.rows[0] == {"env_steps": 100, "video": "video a.mp4"} and steps(asked) == [100, 300]
    assert [artifact.files for artifact in asked.artifacts] == [[(str(best), "immutable", True)]]
    assert steps(unasked) == [300] and unasked.artifacts == []


def test_options_are_those_of_the_command_line_with_secrets_scrubbed(tmp_path: Path) -> None:
    words = "wandb_activate=True wandb_project=robots wandb_entity=me wandb_group=g wandb_tags=[a,b] wandb_name=first"
    more = [f"wandb_logcode_dir={tmp_path}", "+task.env.apiToken=hunter2", "num_envs=64", "wandb_artifacts=True"]
    options = wandb_options(compose(["task=Ant", *words.split(), *more]).config)
    assert options is not None and options[:8] == (
        *("online", "robots", "me", "g", "first", ["a", "b"], str(tmp_path), True),
    )
    assert options.config["num_envs"] == 64 and "hunter2" not in str(options.config)
    default = wandb_options(compose(["task=Ant", "wandb=offline", "seed=3"]).config)
    assert default is not None and (default.mode, default.name) == ("offline", "Ant-default-s3")
    assert wandb_options(compose([]).config) is None


def test_what_cannot_be_done_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="wandb_logcode_dir = /no/such: no such folder"):
        wandb_options(compose(["wandb=offline", "wandb_logcode_dir=/no/such"]).config)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"the package wandb is not installed. Install it: pip install 'isaac-appo"):
        wandb_options(compose(["wandb=offline"]).config)


# ---------------------------------------------------------------------------------------------------- the real library

SCRIPT = """
import os, signal, sys, time
from pathlib import Path
from isaac_appo.report import wandb_sink
from isaac_appo.report.run_dir import RunDir
from isaac_appo.report.wandb_sink import WandbOptions, WandbSink
wandb_sink.INIT_TIMEOUT_S, wandb_sink.CLOSE_S = 1.0, float(sys.argv[3])
run = RunDir.create(sys.argv[1], "Ant", "", 1)
run.prepare("auto")
options = WandbOptions(sys.argv[2], "p", "", "g", "n", ["t"], "", True, {"seed": 7})
sink = WandbSink(options, run, lambda text: print("said", text), lambda text: print("warned", text))
def write(*steps):
    for step in steps:
        sink.write(step, step // 100, 1.0, {"rewards/step": float(step)})
def on_disk(rows):  # a row names its axis in the history and in the summary, and the definition of the axis once
    while sum(p.read_bytes().count(b"env_steps") for p in run.path.glob("wandb/*run-*/*.wandb")) < 2 * rows + 1:
        time.sleep(0.05)
"""


def script(root: Path, mode: str, body: str, close_s: float = 30.0, **env: str) -> str:
    """Run `body` with a sink of the real library in a process of its own; returns what it printed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    env = {**clean, "HOME": str(root), "WANDB_ERROR_REPORTING": "false", **env}
    words = [sys.executable, "-c", SCRIPT + body, str(root), mode, str(close_s)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, env=env, cwd=str(root))
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stdout + done.stderr
    return done.stdout


def folder(root: Path) -> Path:
    return root / "Ant" / "default" / "s1" / "wandb"


def rows_of(root: Path) -> List[int]:
    return [row["env_steps"] for row in logged(folder(root))]


def test_the_real_run_file_holds_config_axis_and_the_rows_of_both_processes(tmp_path: Path) -> None:
    secret = {"SOME_SERVICE": "s3cr3t-value", "WANDB_API_KEY": "k" * 40}
    script(tmp_path, "offline", "write(100, 200, 300); sink.close()", **secret)
    body = """
Path("a.gif").write_bytes(b"GIF89a"); sink.video(Path("a.gif").absolute(), 250)
Path("best.pth").write_bytes(b"weights"); sink.artifact(Path("best.pth").absolute())
write(200, 300, 400); sink.close()
"""
    script(tmp_path, "offline", body, **secret)
    found = {kind: [r for r in records(folder(tmp_path)) if r.WhichOneof("record_type") == kind] for kind in KINDS}
    run_id = json.loads((folder(tmp_path).parent / "run.json").read_text())["wandb_id"]
    assert [r.run.run_id for r in found["run"]] == [run_id, run_id]
    first = found["run"][0].run
    assert (first.project, first.run_group, first.display_name, list(first.tags)) == ("p", "g", "n", ["t"])
    assert {item.key: item.value_json for item in first.config.update}["seed"] == "7"
    assert [(r.metric.glob_name, r.metric.step_metric) for r in found["metric"]].count(("*", "env_steps")) == 2
    assert rows_of(tmp_path) == [100, 200, 300, 250, 200, 300, 400]
    assert [c.path for r in found["artifact"] for c in r.artifact.manifest.contents] == ["best.pth"]
    assert found["environment"] == []  # it would hold the command line
    kept = b"".join(path.read_bytes() for path in folder(tmp_path).rglob("*") if path.is_file())
    assert b"s3cr3t-value" not in kept and b"k" * 40 not in kept


KINDS = ("run", "metric", "artifact", "environment")

needs_prompt_library = pytest.mark.skipif(
    sys.version_info < (3, 9), reason="W&B's last library for Python 3.8 writes late and waits long for a dead service"
)


@needs_prompt_library
def test_a_killed_service_is_replaced_and_the_run_goes_on(tmp_path: Path) -> None:
    body = """
write(100); on_disk(1)
children = [p for p in Path("/proc").glob("[0-9]*") if f" {os.getpid()} " in (p / "stat").read_text()[:60]]
pids = [int(p.name) for p in children if "wandb-core" in (p / "cmdline").read_text()]
assert len(pids) == 1
os.kill(pids[0], signal.SIGKILL); os.waitpid(pids[0], 0)
write(200, 300); sink.close()
"""
    said = script(tmp_path, "offline", body)
    assert said.count("warned") == 1 and "logged offline from here" in said
    assert rows_of(tmp_path) == [100, 200, 300]


def test_an_unreachable_server_leads_offline(tmp_path: Path) -> None:
    server = {"WANDB_BASE_URL": "http://127.0.0.1:9", "WANDB_API_KEY": "a" * 40}
    said = script(tmp_path, "online", "write(100, 200); sink.close()", **server)
    assert said.count("warned") == 1 and "CommError" in said and rows_of(tmp_path) == [100, 200]


def test_without_a_key_nobody_is_asked_for_one(tmp_path: Path) -> None:
    said = script(tmp_path, "online", "write(100); sink.close()")
    assert said.count("warned") == 1 and "wandb login" in said and rows_of(tmp_path) == [100]


def test_a_server_gets_every_row_of_a_run_resumed_from_an_earlier_step(tmp_path: Path) -> None:
    server = WandbServer()
    where = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "a" * 40}
    try:
        said = script(tmp_path, "online", "write(100, 200, 300); sink.close()", **where)
        said += script(tmp_path, "online", "write(200, 300, 400); sink.close()", **where)
    finally:
        server.stop()
    assert "warned" not in said
    assert [row["env_steps"] for row in server.rows()] == [100, 200, 300, 200, 300, 400]


@needs_prompt_library
def test_an_outage_during_a_run_costs_no_row_and_the_end_waits_no_longer_than_it_says(tmp_path: Path) -> None:
    server = WandbServer()
    where = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "a" * 40}
    body = """
import urllib.request
write(100); on_disk(1)
urllib.request.urlopen(urllib.request.Request(os.environ["WANDB_BASE_URL"] + "/stop", data=b""))
write(200, 300); on_disk(3); sink.close()
"""
    said = script(tmp_path, "online", body, close_s=2.0, **where)
    assert said.count("warned") == 1 and "W&B did not finish (no answer within 2 s)" in said
    assert rows_of(tmp_path) == [100, 200, 300]


@needs_prompt_library
def test_rows_that_the_server_refuses_are_said_and_kept(tmp_path: Path) -> None:
    server = WandbServer()
    server.full = True
    where = {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": "a" * 40}
    try:
        said = script(tmp_path, "online", "write(100, 200); sink.close()", **where)
    finally:
        server.stop()
    [warned] = [line for line in said.splitlines() if line.startswith("warned")]
    assert "403 Forbidden" in warned and "the quota is spent" in warned and "wandb sync" in warned
    assert rows_of(tmp_path) == [100, 200]
