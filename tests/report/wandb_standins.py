"""Stand-ins for W&B: a module whose calls raise or block on demand, a reader of its run files, and a small server."""

from __future__ import annotations

import gzip
import json
import struct
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Callable, Dict, Iterator, List, Tuple


class FakeRun:
    url = "https://wandb.example/run"
    dir = "wandb/run/files"

    def __init__(self, owner: FakeWandb, mode: str, settings: Dict[str, Any]) -> None:
        self.owner, self.mode, self.settings = owner, mode, settings
        self.id = settings["id"]
        self.rows: List[Dict[str, Any]] = []
        self.artifacts: List[Any] = []
        self.metrics: List[Tuple[str, str]] = []
        self.finished = False

    def define_metric(self, name: str, step_metric: str) -> None:
        self.owner.at("define_metric", self.mode)
        self.metrics.append((name, step_metric))

    def log(self, row: Dict[str, Any]) -> None:
        self.owner.at("log", self.mode)
        self.rows.append(row)

    def log_artifact(self, artifact: Any) -> None:
        self.artifacts.append(artifact)

    def log_code(self, root: str) -> None:
        self.artifacts.append(root)

    def finish(self) -> None:
        self.owner.at("finish", self.mode)
        self.finished = True


class FakeArtifact:
    def __init__(self, name: str, type: str) -> None:
        self.name, self.files = name, []  # type: ignore[var-annotated]

    def add_file(self, path: str, policy: str, skip_cache: bool) -> None:
        if not Path(path).is_file():
            raise ValueError(f"{path} is not a file")
        self.files.append((path, policy, skip_cache))


class FakeWandb(ModuleType):
    """`fault(call, mode)` is asked at every call and may raise, or block until `release` is set."""

    def __init__(self, fault: Callable[[str, str], str] = lambda call, mode: "") -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None, origin="stand-in")
        self.fault = fault
        self.entered, self.release = threading.Event(), threading.Event()
        self.runs: List[FakeRun] = []
        self.teardowns = 0
        self.Settings, self.Artifact = dict, FakeArtifact

    def at(self, call: str, mode: str) -> None:
        fault = self.fault(call, mode)
        if fault == "block":
            self.entered.set()
            assert self.release.wait(60)
        elif fault == "raise":
            raise ConnectionError(f"no {call}")

    def setup(self, settings: Dict[str, Any]) -> None:
        assert settings["silent"]

    def teardown(self) -> None:
        self.teardowns += 1
        raise SystemExit(-9)  # what the library does where its service was killed

    def init(self, **settings: Any) -> FakeRun:
        mode = settings["mode"] or "online"
        self.at("init", mode)
        self.runs.append(FakeRun(self, mode, settings))
        return self.runs[-1]

    def Video(self, path: str) -> str:  # noqa: N802 (the library's name)
        if not path.endswith((".mp4", ".gif")):
            raise ValueError(f"{path} is no video")
        return f"video {path}"


def records(folder: Path) -> Iterator[Any]:
    """The records of all run files below `folder`, oldest file first: LevelDB log format after a 7-byte header."""
    from wandb.proto import wandb_internal_pb2 as pb

    for path in sorted(folder.glob("*run-*/*.wandb")):
        data, at, part = path.read_bytes(), 7, b""
        while at + 7 <= len(data):
            if 32768 - at % 32768 < 7:
                at += 32768 - at % 32768
                continue
            _, length, kind = struct.unpack("<IHB", data[at : at + 7])
            part += data[at + 7 : at + 7 + length]
            at += 7 + length
            if kind in (1, 4):  # whole, or the last of several parts
                record = pb.Record()
                record.ParseFromString(part)
                part = b""
                yield record


def logged(folder: Path) -> List[Dict[str, Any]]:
    """The rows in the run files, without W&B's own columns."""
    rows = [r.history for r in records(folder) if r.WhichOneof("record_type") == "history"]
    items = [{item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in row.item} for row in rows]
    return [{key: value for key, value in row.items() if not key.startswith("_")} for row in items]


class WandbServer:
    """As much of W&B's server as one run needs: it takes rows at their offsets and tells a resumed run how many."""

    def __init__(self) -> None:
        self.lines: Dict[int, Dict[str, Any]] = {}
        self.config = "{}"
        self.full = False
        """Whether rows are refused for good, as where a quota is spent."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if self.headers.get("Content-Encoding") == "gzip":
                    body = gzip.decompress(body)
                refused = server.full and self.path.endswith("file_stream")
                answer = b"the quota is spent" if refused else json.dumps(server.answer(self.path, body)).encode()
                self.send_response(403 if refused else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def rows(self) -> List[Dict[str, Any]]:
        return [self.lines[at] for at in sorted(self.lines)]

    def answer(self, path: str, body: bytes) -> Dict[str, Any]:
        if path.endswith("file_stream"):
            chunk = json.loads(body).get("files", {}).get("wandb-history.jsonl", {"offset": 0, "content": []})
            for at, line in enumerate(chunk["content"], chunk["offset"]):
                self.lines[at] = json.loads(line)
            return {}
        if path == "/stop":
            self.stop()
        if path != "/graphql":
            return {}
        call = json.loads(body)
        project = {"id": "P", "name": "p", "entity": {"id": "E", "name": "me"}}
        if "UpsertBucket" in call["query"]:
            self.config = call["variables"].get("config") or self.config
            bucket = {"id": "R", "name": call["variables"]["name"], "displayName": "d", "project": project}
            return {"data": {"upsertBucket": {"bucket": {**bucket, "historyLineCount": len(self.lines)}}}}
        if "RunResumeStatus" in call["query"]:
            return {"data": {"model": {**project, "bucket": self._status() if self.lines else None}}}
        if "CreateRunFiles" in call["query"]:
            return {"data": {"createRunFiles": {"runID": "R", "uploadHeaders": [], "files": []}}}
        return {"data": {"serverInfo": {"features": []}}}

    def _status(self) -> Dict[str, Any]:
        counts = {"historyLineCount": len(self.lines), "eventsLineCount": 0, "logLineCount": 0}
        tail = json.dumps([json.dumps(self.rows()[-1])])
        texts = {"historyTail": tail, "eventsTail": "[]", "summaryMetrics": "{}", "config": self.config}
        return {"id": "R", "name": "r", "displayName": "d", **counts, **texts, "tags": [], "wandbConfig": "{}"}
