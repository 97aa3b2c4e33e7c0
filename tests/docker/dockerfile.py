"""What Dockerfiles may not do, as a function of their text."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Dict, Iterator, List, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
_SECRET = re.compile(r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|_KEY)\w*$", re.IGNORECASE)
_FULL_TAG = re.compile(r"[\w./-]+:(?=[^$]*\d+\.\d+\.\d+)[\w.-]+\$\{BASE_DIGEST\}$")
_PIP = re.compile(r"\bpip install (.*?)(?=&&|\|\||;|$)")


class Instruction(NamedTuple):
    name: str
    text: str


def instructions(text: str) -> List[Instruction]:
    """The instructions of a Dockerfile, comments dropped and continued lines joined."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n", " ", "\n".join(lines))
    words = [line.strip().split(None, 1) for line in joined.splitlines() if line.strip()]
    return [Instruction(name.upper(), " ".join(rest[0].split()) if rest else "") for name, *rest in words]


def lock_of(text: str) -> Dict[str, str]:
    """The pins of the lock that belongs to the image's Python, name -> version."""
    python = re.findall(r"\bpython(3\.\d+) -m venv", text)
    assert len(python) == 1, f"one Python per image, not {python}"
    lines = (ROOT / "requirements" / f"py{python[0].replace('.', '')}.txt").read_text().splitlines()
    return dict(line.split("==") for line in lines if "==" in line)


def violations(text: str) -> List[str]:
    """Every rule that the Dockerfile `text` breaks, one sentence each."""
    parsed = instructions(text)
    checks = (_user, _start, _secrets, _bases, _copies)
    return [found for check in checks for found in check(parsed)] + list(_pins(parsed, lock_of(text), text))


def _last(parsed: List[Instruction], name: str) -> str:
    return next((i.text for i in reversed(parsed) if i.name == name), "")


def _user(parsed: List[Instruction]) -> Iterator[str]:
    defaults = dict(i.text.split("=", 1) for i in parsed if i.name == "ARG" and "=" in i.text)
    user = re.sub(r"\$\{(\w+)\}", lambda m: defaults.get(m[1], ""), _last(parsed, "USER"))
    if user != "1000":
        yield f"ends as user {user!r}, not 1000"


def _start(parsed: List[Instruction]) -> Iterator[str]:
    for name in ("ENTRYPOINT", "CMD", "HEALTHCHECK"):
        text = _last(parsed, name)
        words = text[text.find("[") :] if "[" in text else ""
        if not words or not all(isinstance(word, str) for word in json.loads(words)):
            yield f"{name} is not in exec form: a shell in between swallows signals"
    if _last(parsed, "STOPSIGNAL") != "SIGTERM":
        yield "STOPSIGNAL is not SIGTERM"


def _secrets(parsed: List[Instruction]) -> Iterator[str]:
    for name, text in parsed:
        if name in ("ENV", "ARG"):
            for key, equals in re.findall(r"(?:^|\s)([A-Za-z_]\w*)(=?)", text):
                if _SECRET.search(key):
                    yield f"{name} {key}{equals} puts a secret into the image or its history"


def _bases(parsed: List[Instruction]) -> Iterator[str]:
    for text in (i.text for i in parsed if i.name == "FROM"):
        if not _FULL_TAG.match(text.split(" AS ")[0]):
            yield f"FROM {text}: not a full version tag with the digest as an argument"


def _copies(parsed: List[Instruction]) -> Iterator[str]:
    for text in (i.text for i in parsed if i.name in ("COPY", "ADD")):
        words = [word for word in text.split() if not word.startswith("--")]
        if any(word.startswith("--from=") for word in text.split()):
            continue
        for source in words[:-1]:
            if not (ROOT / source).exists():
                yield f"COPY {source}: no such file"
            elif ignored(source):
                yield f"COPY {source}: left out by .dockerignore"


def ignored(path: str) -> bool:
    """Whether .dockerignore, which leaves out everything but what it lists with '!', leaves `path` out."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    assert patterns[0] == "*" and all(p.startswith("!") or p.startswith("**/") for p in patterns[1:])
    folders = {path, *(str(parent) for parent in Path(path).parents)}
    return not folders & {pattern[1:] for pattern in patterns if pattern.startswith("!")}


def _pins(parsed: List[Instruction], lock: Dict[str, str], text: str) -> Iterator[str]:
    for arguments in (m for i in parsed if i.name == "RUN" for m in _PIP.findall(i.text)):
        words = iter(arguments.split())
        for word in words:
            if word == "-r":
                name = Path(next(words)).name
                if dict(line.split("==") for line in _lines(name)) != lock:
                    yield f"{name} is not the lock of this image's Python"
            elif word.startswith("-") or word.startswith("/"):
                continue  # an option, or source that is already in the image
            elif word.split("==") != [word.split("==")[0], lock.get(word.split("==")[0])]:
                yield f"pip install {word}: not a pin of the lock"


def _lines(lock: str) -> List[str]:
    return [line for line in (ROOT / "requirements" / lock).read_text().splitlines() if "==" in line]
