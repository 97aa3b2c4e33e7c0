"""The generated pages are what the schema and the table of metrics say."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["configuration.md", "metrics.md"])
def test_page_is_up_to_date(name: str) -> None:
    page = generator().PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == page, "run: python docs/generate.py"


def test_pages_hold_keys_with_their_rules() -> None:
    module = generator()
    line = next(line for line in module.configuration().splitlines() if "`schedule.lag`" in line)
    assert line.startswith("| `schedule.lag` | `1` | >= 0, <= 8 |")
    assert "| `lag/max` | updates |" in module.metrics()
