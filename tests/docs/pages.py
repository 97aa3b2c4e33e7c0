"""The Markdown pages of the project, and what stands in them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, List

ROOT = Path(__file__).resolve().parents[2]
PAGES: Dict[str, Path] = {
    str(path.relative_to(ROOT)): path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
}
_FENCED = re.compile(r"^```[^\n]*\n(.*?)^```", re.M | re.S)
_INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.M)


def code_blocks(text: str) -> List[str]:
    """Fenced and indented blocks, without the indent."""
    fenced = _FENCED.findall(text)
    rest = _FENCED.sub("", text)
    return [*fenced, *(re.sub(r"^ {4}", "", block, flags=re.M) for block in _INDENTED.findall(rest))]


def prose(text: str) -> str:
    """All but code blocks."""
    return _INDENTED.sub("", _FENCED.sub("", text))


def files_of(text: str) -> Dict[str, str]:
    """Fenced blocks after a paragraph that begins with a file's name in backticks, by that name."""
    named = re.findall(r"^`([\w./]+\.\w+)`(?:[^\n]+\n)+\n```\w+\n(.*?)^```", text, re.M | re.S)
    return dict(named)


def commands_of(text: str) -> List[str]:
    """Every command line in code blocks and in inline code, comments off, in the order of the page's blocks first."""
    lines = [line for block in code_blocks(text) for line in re.sub(r"\\\n\s*", "", block).splitlines()]
    lines += [re.sub(r"\s+", " ", span) for span in re.findall(r"`([^`]+)`", prose(text))]
    parts = [re.split(r"\s+#", part)[0].strip() for line in lines for part in line.split(" && ")]
    return [part for part in parts if re.match(r"(isaac-appo|make|docker run|python -m isaac_appo) [\w-]", part)]
