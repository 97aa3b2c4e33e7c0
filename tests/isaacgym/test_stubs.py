"""The double and the engine against the published type stubs of Isaac Gym, which come from the real bindings."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import Dict, List, Set, Tuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOUBLE = ROOT / "tests" / "doubles" / "isaacgym"
ENGINE = [ROOT / "isaac_appo" / "sim" / name for name in ("isaacgym.py", "isaacgym_scene.py")]
OWN = {"Tensor": {"owned", "storage", "offset", "torch_dtype"}, "Transform": {"row"}}  # the double's own workings

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="the lock of Python 3.11 has the stubs and mypy")


def stub_text() -> str:
    """The stubs, mended: an attribute named `lambda` is no Python."""
    spec = importlib.util.find_spec("isaacgym-stubs")
    assert spec is not None and spec.submodule_search_locations is not None
    text = (Path(spec.submodule_search_locations[0]) / "gymapi.pyi").read_text(encoding="utf-8")
    mended, count = text.replace("def lambda(", "def lambda_("), text.count("def lambda(")
    assert count == 2
    return mended


def classes(text: str) -> Dict[str, ast.ClassDef]:
    return {node.name: node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)}


def members(node: ast.ClassDef) -> Set[str]:
    """Names of a class's attributes, those that its methods set on self included."""
    found = {item.name for item in node.body if isinstance(item, ast.FunctionDef)}
    for item in ast.walk(node):
        if isinstance(item, ast.Name) and isinstance(item.ctx, ast.Store) and _is_own(node, item):
            found.add(item.id)
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store) and _is_self(item.value):
            found.add(item.attr)
    return found


def _is_own(node: ast.ClassDef, name: ast.Name) -> bool:
    """Whether a name is assigned in the class's body itself, and not in a method."""
    plain = [item for item in node.body if isinstance(item, (ast.Assign, ast.AnnAssign))]
    return any(name is each for item in plain for each in ast.walk(item))


def _is_self(value: ast.expr) -> bool:
    return isinstance(value, ast.Name) and value.id == "self"


def signature(function: ast.FunctionDef) -> List[Tuple[str, bool]]:
    """(name, whether it has a default) of each parameter; from the docstring where the stub says only *args."""
    if function.args.vararg is not None:
        line = (ast.get_docstring(function) or "").splitlines()[0]
        text = re.sub(r"\[.*?\]|<.*?>", "None", re.sub(r"isaacgym\.gymapi\.|carb::gym::", "", line))
        parsed = ast.parse(f"def {text.split('->')[0].strip()}: pass").body[0]
        assert isinstance(parsed, ast.FunctionDef)
        function = parsed
    names = [arg.arg for arg in function.args.args if arg.arg != "self"]
    required = len(names) - len(function.args.defaults)
    return [(name, i >= required) for i, name in enumerate(names)]


def used(name: str) -> Set[str]:
    """Attributes that the engine takes of a variable of this name, `self._NAME` included."""
    found = set()
    for file in ENGINE:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute):
                value = node.value
                plain = isinstance(value, ast.Name) and value.id == name
                if plain or (isinstance(value, ast.Attribute) and value.attr == f"_{name}"):
                    found.add(node.attr)
    return found


def test_everything_the_engine_uses_exists_in_the_stubs_and_in_the_double() -> None:
    stubs, double = ast.parse(stub_text()), (DOUBLE / "gymapi.py").read_text(encoding="utf-8")
    named = [item for item in stubs.body if isinstance(item, (ast.ClassDef, ast.FunctionDef, ast.AnnAssign))]
    top = {item.target.id if isinstance(item, ast.AnnAssign) else item.name for item in named}  # type: ignore[union-attr]
    calls, attributes = used("gym"), used("gymapi")
    assert len(calls) > 20 and {"SimParams", "SIM_PHYSX", "acquire_gym"} <= attributes
    assert calls - members(classes(stub_text())["Gym"]) == set()
    assert calls - members(classes(double)["Gym"]) == set()
    assert attributes - top == set()
    assert [name for name in attributes if not re.search(rf"\b{name}\b", double)] == []


def test_the_doubles_classes_have_the_attributes_of_the_stubs() -> None:
    theirs, ours = classes(stub_text()), classes((DOUBLE / "gymapi.py").read_text(encoding="utf-8"))
    handles = {"Asset", "Env", "Viewer"}  # opaque in the real API
    compared = [name for name in ours if name in theirs and name not in handles]
    assert {"SimParams", "PhysXParams", "AssetOptions", "Vec3", "Transform", "Tensor", "Gym"} <= set(compared)
    for name in compared:
        extra = members(ours[name]) - members(theirs[name]) - OWN.get(name, set())
        assert {each for each in extra if not each.startswith("_")} == set(), name


def test_the_doubles_calls_have_the_parameters_of_the_stubs() -> None:
    theirs, ours = classes(stub_text())["Gym"], classes((DOUBLE / "gymapi.py").read_text(encoding="utf-8"))["Gym"]
    stubs = {item.name: item for item in theirs.body if isinstance(item, ast.FunctionDef)}
    double = {item.name: signature(item) for item in ours.body if isinstance(item, ast.FunctionDef)}
    assert len(double) > 25
    for name, parameters in double.items():
        wanted = signature(stubs[name])
        if name not in ("get_asset_dof_properties", "set_actor_dof_properties"):  # named arg0.. in one of the two
            assert [each for each, _ in parameters] == [each for each, _ in wanted], name
        assert [default for _, default in parameters] == [default for _, default in wanted], name


FAULTS = (
    ("gym.prepare_sim(sim)", "gym.prepare_sim(sim, 1)", 'Too many arguments for "prepare_sim" of "Gym"'),
    ("gym.add_ground(sim, plane)", "gym.add_ground(plane, sim)", 'has incompatible type "PlaneParams"'),
    ("options.fix_base_link", "options.fix_base", '"AssetOptions" has no attribute "fix_base"'),
)


@pytest.mark.parametrize("faults", [(), FAULTS])
def test_the_engine_type_checks_against_the_stubs(faults: Tuple[Tuple[str, str, str], ...], tmp_path: Path) -> None:
    stubs = tmp_path / "stubs" / "isaacgym"
    stubs.mkdir(parents=True)
    (stubs / "gymapi.pyi").write_text("# mypy: ignore-errors\n" + stub_text(), encoding="utf-8")  # it has faults
    (stubs / "__init__.pyi").write_text("")
    (stubs / "gymtorch.pyi").write_text("def __getattr__(name: str): ...\n")
    for file in ENGINE:
        text = file.read_text(encoding="utf-8")
        for good, bad, _ in faults:
            text = text.replace(good, bad)
        (tmp_path / file.name.replace("isaacgym", "engine")).write_text(text)
    options = ["--config-file=", "--follow-imports=skip", "--ignore-missing-imports", "--check-untyped-defs"]
    options += ["--cache-dir", str(tmp_path / "cache"), "--hide-error-context", "--no-error-summary"]
    command = [sys.executable, "-m", "mypy", *options, "engine.py", "engine_scene.py"]
    environment = {"MYPYPATH": str(stubs.parent), "PATH": ""}
    done = subprocess.run(command, cwd=str(tmp_path), env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout == "") == ((1, False) if faults else (0, True)), done.stdout
    assert [message for _, _, message in faults if message not in done.stdout] == []


def test_the_double_says_that_it_is_one_and_lies_on_no_path_but_that_of_its_own_tests() -> None:
    assert "__is_double__ = True" in (DOUBLE / "__init__.py").read_text(encoding="utf-8").splitlines()
    assert importlib.util.find_spec("isaacgym") is None
