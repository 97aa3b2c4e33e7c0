"""The package as others get it: sdist, wheel and editable install, each used from another folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from typing import List, NamedTuple, Set

import pytest
from packaging.requirements import Requirement

from isaac_appo import __version__

ROOT = Path(__file__).resolve().parents[2]
TOOLS = sys.version_info >= (3, 9)  # mypy and its like are in the lock of Python 3.11 alone
LOCK = ROOT / "requirements" / ("py311.txt" if TOOLS else "py38.txt")
NOPE = (
    'main.py:2: error: Cannot find implementation or library stub for module named "isaac_appo.tasks.nope"  '
    "[import-not-found]"
)
TOP_LEVEL = "import importlib.util as u; print([n for n in ('tasks', 'cfg', 'tests', 'setup') if u.find_spec(n)])"
WHERE = "import isaac_appo as a, isaac_appo.tasks as t, isaac_appo.cfg as c; print(a.__file__, t.__file__, c.__file__)"


class Built(NamedTuple):
    source: Path  # a copy of the repository's own files
    sdist: Path
    wheel: Path  # made from the sdist


def run(*command: object, cwd: Path) -> str:
    words = [str(word) for word in command]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MYPYPATH")}
    done = subprocess.run(words, cwd=str(cwd), env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    source, out = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("out")
    for name in run("git", "ls-files", "-co", "--exclude-standard", cwd=ROOT).splitlines():
        if os.path.lexists(ROOT / name):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, source / name, follow_symlinks=False)
    hook = f"import setuptools.build_meta as b; b.build_sdist({str(out)!r})"
    run(sys.executable, "-c", hook, cwd=source)
    sdist = next(out.glob("*.tar.gz"))
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", out, sdist, cwd=out)
    return Built(source, sdist, next(out.glob("*.whl")))


def empty_venv(folder: Path) -> Path:
    """A venv with nothing in it; third-party packages come from this interpreter's folder, without its .pth files."""
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder.parent)
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "third_party.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    assert "isaac_appo" not in os.listdir(sysconfig.get_paths()["purelib"])
    return folder


def install(venv: Path, *what: object) -> None:
    pip = [sys.executable, "-m", "pip", "--python", venv / "bin" / "python", "install", "-q", "--no-index", "--no-deps"]
    run(*pip, "--no-build-isolation", *what, cwd=venv)


def expected_files() -> Set[str]:
    """What the package needs at run time, found in the repository itself."""
    found = {f"isaac_appo/{path.relative_to(ROOT)}" for path in (ROOT / "cfg").rglob("*.yaml")}
    found |= {f"isaac_appo/{path.relative_to(ROOT)}" for path in (ROOT / "tasks").rglob("*.xml")}
    found |= {f"isaac_appo/{path.relative_to(ROOT)}" for path in (ROOT / "tasks").glob("*.py")}
    found |= {f"isaac_appo/{path.relative_to(ROOT)}" for path in (ROOT / "tasks" / "assets" / "demo").glob("*")}
    found |= {str(path.relative_to(ROOT)) for path in (ROOT / "isaac_appo").rglob("*.py")}
    return found | {"isaac_appo/py.typed", "isaac_appo/cfg/__init__.py"}


def test_links_are_relative() -> None:
    assert os.readlink(ROOT / "isaac_appo" / "tasks") == "../tasks"
    assert os.readlink(ROOT / "isaac_appo" / "cfg") == "../cfg"


def test_wheel_holds_everything_under_one_name(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        names = wheel.namelist()
        scripts = wheel.read(f"isaac_appo-{__version__}.dist-info/entry_points.txt").decode()
    assert {name.split("/")[0] for name in names} == {"isaac_appo", f"isaac_appo-{__version__}.dist-info"}
    assert expected_files() - set(names) == set()
    assert any(name.endswith("/LICENSE") for name in names)
    assert "isaac-appo = isaac_appo.commands.main:main" in scripts


def test_what_the_wheel_requires_is_locked(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as wheel:
        text = wheel.read(f"isaac_appo-{__version__}.dist-info/METADATA").decode()
    wanted = [Requirement(value) for value in Parser().parsestr(text).get_all("Requires-Dist", [])]
    wanted = [need for need in wanted if need.marker is None or need.marker.evaluate({"extra": "dev" if TOOLS else ""})]
    lines = LOCK.read_text().splitlines()
    locked = dict(line.split("==") for line in lines if "==" in line)
    assert {"torch", "rl-games"} | ({"mypy"} if TOOLS else set()) <= {need.name for need in wanted}
    assert [str(need) for need in wanted if not need.specifier.contains(locked[need.name])] == []


def test_sdist_holds_the_package_as_real_files(built: Built) -> None:
    prefix = f"isaac_appo-{__version__}/"
    with tarfile.open(built.sdist) as sdist:
        members = {member.name[len(prefix) :]: member for member in sdist.getmembers()}
    assert expected_files() - set(members) == set()
    assert not any(member.issym() for member in members.values())
    assert {"LICENSE", "CHANGELOG.md", "pyproject.toml", "setup.py"} <= set(members)
    assert not {name.split("/")[0] for name in members} & {"tasks", "cfg"}


def test_wheel_works_from_another_folder_in_an_empty_venv(built: Built, tmp_path: Path) -> None:
    venv = empty_venv(tmp_path / "venv")
    install(venv, built.wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    python = venv / "bin" / "python"
    assert run(python, "-c", TOP_LEVEL, cwd=elsewhere).strip() == "[]"
    places = run(python, "-c", WHERE, cwd=elsewhere).split()
    assert len(places) == 3 and all(place.startswith(str(venv)) for place in places)
    for command in ([venv / "bin" / "isaac-appo"], [python, "-m", "isaac_appo"]):
        shown = run(*command, "train", "--cfg", "job", "--resolve", "task=Ant", "num_envs=7", cwd=elsewhere)
        assert "numEnvs: 7" in shown and "terminationHeight: 0.31" in shown
    assert os.listdir(elsewhere) == []
    assert not TOOLS or type_errors(python, elsewhere) == [NOPE]


def test_editable_install_works_from_another_folder(built: Built, tmp_path: Path) -> None:
    venv = empty_venv(tmp_path / "venv")
    install(venv, "-e", built.source)
    python = venv / "bin" / "python"
    places = run(python, "-c", WHERE, cwd=tmp_path).split()
    assert len(places) == 3 and all(place.startswith(str(built.source)) for place in places)
    assert run(python, "-c", TOP_LEVEL, cwd=tmp_path).strip() == "[]"
    shown = run(venv / "bin" / "isaac-appo", "train", "--cfg", "job", "task=Cartpole", cwd=tmp_path)
    assert "maxEffort: 400.0" in shown


@pytest.mark.skipif(not TOOLS, reason="mypy is in the lock of Python 3.11 alone")
def test_the_type_checker_sees_the_links_in_the_repository(built: Built) -> None:
    assert type_errors(Path(sys.executable), built.source) == [NOPE]


def type_errors(python: Path, folder: Path) -> List[str]:
    """mypy's errors for two imports, one of which does not exist; imports are found and not followed, to be quick."""
    imports = "import isaac_appo.tasks, isaac_appo.cfg, isaac_appo.config\nimport isaac_appo.tasks.nope\n"
    (folder / "main.py").write_text(imports)
    options = ["--config-file=", "--cache-dir", os.devnull, "--follow-imports", "skip", "--hide-error-context"]
    command = [sys.executable, "-m", "mypy", *options, "--python-executable", str(python), "main.py"]
    done = subprocess.run(command, cwd=str(folder), capture_output=True, text=True, check=False)
    return [line for line in done.stdout.splitlines() if ": error:" in line]
