from __future__ import annotations

import threading
from pathlib import Path
from typing import Callable, Dict

import pytest
import torch
from torch import Tensor

from isaac_appo.sim.engine import EngineError
from isaac_appo.sim.mujoco import MujocoEngine

from .conftest import pile

Make = Callable[..., MujocoEngine]
CONTRACT = ("root_pos", "root_quat", "root_lin_vel", "root_ang_vel", "dof_pos", "dof_vel", "site_wrench", "invalid")


def _all(n: int) -> Tensor:
    return torch.ones(n, dtype=torch.bool)


def _rows(n: int, *rows: int) -> Tensor:
    mask = torch.zeros(n, dtype=torch.bool)
    mask[list(rows)] = True
    return mask


def _drive(engine: MujocoEngine, steps: int, seed: int) -> Dict[str, Tensor]:
    """Push the ants around at random; the same efforts for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        engine.apply_efforts(15.0 * (2.0 * torch.rand(engine.num_envs, 8, generator=generator) - 1.0))
        engine.step()
    return engine.state_dict()


def _equal(a: Dict[str, Tensor], b: Dict[str, Tensor]) -> bool:
    return all(torch.equal(a[key], b[key]) for key in a)


@pytest.mark.parametrize("threads", [2, 3, 16])
def test_the_number_of_threads_changes_no_bit(threads: int, make_engine: Make) -> None:
    one = _drive(make_engine("", 7), 20, seed=4)
    many = _drive(make_engine("", 7, threads=threads), 20, seed=4)
    assert _equal(one, many)
    assert not _equal(one, _drive(make_engine("", 7), 20, seed=5))


def test_full_contact_memory_is_an_error_that_names_the_setting(make_engine: Make, tmp_path: Path) -> None:
    fine = make_engine(pile("4M"), 2)
    fine.step()
    fine.check()
    tight = make_engine(pile("60K"), 2)
    with pytest.raises(EngineError, match='raise <size memory="120K"/>') as error:
        for _ in range(3):
            tight.step()  # MuJoCo gives up here or goes on with contacts left out, by version
        tight.check()
    assert str(tmp_path / "model_1.xml") in str(error.value)


def test_the_log_lies_in_its_folder_and_nowhere_else(
    make_engine: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    engine = make_engine("", 3, threads=2, log_dir=str(tmp_path / "run"))
    engine.dof_vel[2] = float("nan")
    engine.reset(_all(3))
    engine.step()
    engine.check()
    assert "QVEL" in (tmp_path / "run" / "MUJOCO_LOG.TXT").read_text()
    assert list((tmp_path / "here").iterdir()) == []


def test_what_the_engine_does_not_offer_is_refused(make_engine: Make) -> None:
    with pytest.raises(EngineError, match="set sim_device=cpu"):
        make_engine("", 1, device="cuda:0")
    assert make_engine("", 1).capabilities() == ()


def test_close_ends_the_threads(make_engine: Make) -> None:
    engine = make_engine("", 4, threads=3)
    engine.step()
    assert any(thread.name.startswith("mujoco") for thread in threading.enumerate())
    engine.close()
    engine.close()
    assert not any(thread.name.startswith("mujoco") for thread in threading.enumerate())
