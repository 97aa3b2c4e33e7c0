from __future__ import annotations

import csv
import math
from pathlib import Path

import pytest

from isaac_appo.report.csv import CsvSink, read_columns


def rows(path: Path) -> list[dict[str, str]]:
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def fill(path: Path, updates: range, start_update: int = 0, reward: float = 1.0) -> None:
    sink = CsvSink(path, start_update)
    for update in updates:
        sink.write(update * 100, update, update * 0.5, {"rewards/step": reward, "info/kl": 0.1})
    sink.close()


def test_rows_are_on_disk_at_once_and_read_back(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    sink.write(4096, 1, 1.25, {"rewards/step": math.nan, "info/kl": 0.0123456789})
    assert path.read_text() == "update,env_steps,elapsed_s,info/kl,rewards/step\n1,4096,1.250,0.0123456789,\n"
    sink.write(8192, 2, 2.5, {"rewards/step": 7.0})
    sink.close()
    columns = read_columns(path, ("env_steps", "rewards/step", "absent"))
    assert columns["env_steps"] == [4096.0, 8192.0]
    assert math.isnan(columns["rewards/step"][0]) and columns["rewards/step"][1] == 7.0
    assert all(math.isnan(value) for value in columns["absent"])


def test_resume_drops_the_updates_that_are_done_again(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    fill(path, range(1, 8))
    fill(path, range(5, 7), start_update=4, reward=2.0)
    assert [(int(row["update"]), float(row["rewards/step"])) for row in rows(path)] == [
        (1, 1.0), (2, 1.0), (3, 1.0), (4, 1.0), (5, 2.0), (6, 2.0),
    ]  # fmt: skip


def test_rows_are_dropped_on_opening_not_at_the_first_write(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    fill(path, range(1, 8))
    CsvSink(path, 2).close()
    assert [row["update"] for row in rows(path)] == ["1", "2"]


def test_a_new_run_starts_a_new_file(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    fill(path, range(1, 4))
    sink = CsvSink(path)
    sink.write(1, 1, 0.0, {"a": 1.0})
    sink.close()
    assert path.read_text() == "update,env_steps,elapsed_s,a\n1,1,0.000,1\n"


@pytest.mark.parametrize("tail", ["4,40", "4,400,2.000,0.1,1.0", "garbage\n", "x,y,z,a,b\n"])
def test_half_a_row_of_a_killed_process_goes(tmp_path: Path, tail: str) -> None:
    path = tmp_path / "metrics.csv"
    fill(path, range(1, 4))
    with open(path, "a") as file:
        file.write(tail)
    fill(path, range(4, 5), start_update=3)
    assert [row["update"] for row in rows(path)] == ["1", "2", "3", "4"]
    assert rows(path)[-1]["env_steps"] == "400"


def test_a_row_without_its_end_may_lack_digits_and_goes(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    fill(path, range(1, 4))
    path.write_text(path.read_text().rstrip("\n"))
    fill(path, range(4, 5), start_update=3)
    assert [row["update"] for row in rows(path)] == ["1", "2", "4"]


def test_a_new_key_makes_a_union_header(tmp_path: Path) -> None:
    path = tmp_path / "metrics.csv"
    sink = CsvSink(path)
    sink.write(1, 1, 0.0, {"b": 1.0})
    sink.write(2, 2, 0.0, {"c": 2.0, "a": 3.0})
    sink.write(3, 3, 0.0, {"b": 4.0})
    sink.close()
    table = [[row[key] for key in ("update", "b", "a", "c")] for row in rows(path)]
    assert path.read_text().startswith("update,env_steps,elapsed_s,b,a,c\n")
    assert table == [["1", "1", "", ""], ["2", "", "3", "2"], ["3", "4", "", ""]]


def test_reading_nothing_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no metrics were logged"):
        read_columns(tmp_path / "metrics.csv", ("update",))
