"""The site builds, and nothing in it or in README.md leads nowhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import List

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, prose

BUILDS = pytest.mark.skipif(sys.version_info < (3, 11), reason="the site is built with the lock of Python 3.11")


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(config), "-d", str(site)]
    return subprocess.run(command, capture_output=True, text=True)


@BUILDS
def test_the_site_builds_and_holds_every_page(tmp_path: Path) -> None:
    done = build(ROOT / "mkdocs.yml", tmp_path)
    assert done.returncode == 0, done.stderr
    pages = [Path(name).relative_to("docs").with_suffix(".html") for name in PAGES if name.startswith("docs/")]
    assert [page for page in pages if not (tmp_path / page).is_file()] == []
    assert not re.search(r'(src|href)="https?://(?!www\.mkdocs\.org)', (tmp_path / "concepts.html").read_text())
    assert not list(tmp_path.rglob("*.py")) and not list(tmp_path.rglob("*.jsonl"))


@BUILDS
def test_dead_links_anchors_pictures_and_forgotten_pages_stop_it(tmp_path: Path) -> None:
    config = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    (tmp_path / "mkdocs.yml").write_text(yaml.safe_dump({**config, "nav": ["index.md"]}), encoding="utf-8")
    (tmp_path / "docs").mkdir()
    dead = ["nowhere.md", "#no-such-heading", "other.md#nor-this", "no_picture.png", "/absolute.md"]
    (tmp_path / "docs" / "index.md").write_text("\n".join(f"[x]({link})" for link in dead), encoding="utf-8")
    (tmp_path / "docs" / "other.md").write_text("# Other\n", encoding="utf-8")
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    warned = [line for line in done.stderr.splitlines() if line.startswith("WARNING")]
    assert done.returncode == 1
    for word in [*dead, "other.md"]:
        assert any(word in line for line in warned), (word, warned)
    assert len(warned) == len(dead) + 1


def anchors(path: Path) -> List[str]:
    """The anchors that GitHub gives the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", prose(path.read_text(encoding="utf-8")), re.M)
    return [re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads]


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)]+)\)", prose(PAGES["README.md"].read_text(encoding="utf-8")))
    assert len(links) > 10
    for link in links:
        name, _, anchor = link.partition("#")
        path = ROOT / (name or "README.md")
        assert path.exists(), link
        assert not anchor or anchor in anchors(path), link
