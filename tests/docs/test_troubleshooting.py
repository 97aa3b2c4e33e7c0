"""Headings of the troubleshooting page are parts of messages that the program really prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HEADINGS = re.findall(r"^### `(.+)`$", (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8"), re.M)


@pytest.fixture(scope="module")
def strings() -> str:
    """All source, with adjacent string literals joined and fields of f-strings kept as they stand."""
    files = [*(ROOT / "isaac_appo").rglob("*.py"), *(ROOT / "tasks").glob("*.py")]
    text = "\n".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_there_are_headings() -> None:
    assert len(HEADINGS) > 10 and len(set(HEADINGS)) == len(HEADINGS)


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_text_is_in_the_program(heading: str, strings: str) -> None:
    assert heading in strings
