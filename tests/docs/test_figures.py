"""The picture of the schedules shows what the programs do, and is the one that they draw now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def figures() -> ModuleType:
    spec = importlib.util.spec_from_file_location("figures", ROOT / "docs" / "figures.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_blocks_are_what_the_schedules_promise(figures: ModuleType) -> None:
    found = figures.timelines()
    acting = {name: [(b.slab, b.version) for b in blocks if b.stream == "policy/0"] for name, blocks in found.items()}
    assert acting["schedule=sync"] == [(i, i) for i in range(6)]
    assert acting["schedule=lockstep"] == [(i, max(0, i - 1)) for i in range(6)]
    assert {(2, 1), (2, 2)} < set(acting["schedule=free"])  # adopted in the middle of a slab
    ends = {name: max(b.end for b in blocks) for name, blocks in found.items()}
    collect, learn = (sum(figures.SECONDS[name]) for name in ("step", "minibatch"))
    assert ends["schedule=sync"] == pytest.approx(collect + learn)
    assert ends["schedule=lockstep"] < 0.65 * ends["schedule=sync"]


def test_the_picture_is_up_to_date_and_small(figures: ModuleType, tmp_path: Path) -> None:
    with Image.open(figures.PNG) as image:
        assert image.text["Description"] == figures.digest(figures.timelines()), "run: python docs/figures.py"
    assert figures.PNG.stat().st_size < 150_000
    figures.draw(tmp_path / "again.png")
    with Image.open(tmp_path / "again.png") as again, Image.open(figures.PNG) as image:
        assert again.size == image.size and again.text == image.text
