from __future__ import annotations

from pathlib import Path

import pytest

from isaac_appo.config.errors import ConfigError
from isaac_appo.topology.document import read_mapping


def test_yaml_and_json_read_alike(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("learner: [train]\nn: 2\n")
    (tmp_path / "a.json").write_text('{"learner": ["train"], "n": 2}')
    for name in ("a.yaml", "a.json"):
        assert read_mapping(str(tmp_path / name), "--file") == {"learner": ["train"], "n": 2}


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a: [1", "is neither YAML nor JSON"),
        ("- a\n- b\n", "holds list, not a mapping"),
        ("", "holds NoneType, not a mapping"),
        ("a: 1\nb:\n  c: 1\n  c: 2\n", "key 'c' comes twice"),
        ("1: a\n", "key 1 is no text"),
        ("a: !!python/object/apply:os.getcwd []\n", "is neither YAML nor JSON"),
    ],
)
def test_what_is_no_mapping_is_refused_by_name(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        read_mapping(str(path), "--file")
    [message] = error.value.errors
    assert message.startswith(f"--file {path}: ") and fault in message


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.yaml", tmp_path):
        with pytest.raises(ConfigError, match="cannot be read"):
            read_mapping(str(path), "--file")
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_mapping(str(tmp_path / "bytes"), "--file")
