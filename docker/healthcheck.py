"""Exit code 0 while this container's newest run is alive, else 1 with the reason: Docker's health check.

A run rewrites `heartbeat.json` after every update. Standard library only, as it starts every half minute.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Optional


def newest_heartbeat(run_root: Path, host: str) -> Optional[Path]:
    """The heartbeat last written by a run of `host`; containers may share the folder, each being a host of its own."""
    beats = [
        run_json.with_name("heartbeat.json")
        for run_json in run_root.glob("*/*/*/run.json")
        if json.loads(run_json.read_text(encoding="utf-8")).get("host") == host
    ]
    return max((beat for beat in beats if beat.exists()), key=lambda beat: beat.stat().st_mtime, default=None)


def main() -> int:
    """Check the runs under RUN_ROOT (`runs`) against HEARTBEAT_MAX_AGE_S (300, the watchdog's own deadline)."""
    run_root, longest = Path(os.environ.get("RUN_ROOT", "runs")), float(os.environ.get("HEARTBEAT_MAX_AGE_S", "300"))
    beat = newest_heartbeat(run_root, socket.gethostname())
    if beat is None:
        print(f"No run of this container has a heartbeat under {run_root.absolute()}.")
        return 1
    age = time.time() - json.loads(beat.read_text(encoding="utf-8"))["unix_time"]
    print(f"{beat}: last heartbeat {age:.0f} s ago, at most {longest:.0f} s allowed.")
    return int(age > longest)


if __name__ == "__main__":
    sys.exit(main())
