from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from isaac_appo.report.atomic_file import write_atomic, write_json


@pytest.mark.parametrize("durable", [True, False])
def test_a_reader_sees_the_old_file_or_the_new_one(tmp_path: Path, durable: bool) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with open(path) as reader:
        write_atomic(path, b"new", durable=durable)
        assert reader.read() == "old"
    assert path.read_text() == "new"


def test_a_refusing_check_keeps_the_old_file_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def check(temporary: Path) -> None:
        assert temporary.read_text() == "new" and temporary.parent == tmp_path and temporary.name.startswith(".")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        write_atomic(path, b"new", check)
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_json_has_no_nan(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": [1.5, math.nan, {"y": -math.inf}], "z": "NaN"})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": [1.5, None, {"y": None}], "z": "NaN"}
