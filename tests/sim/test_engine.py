from __future__ import annotations

import pytest

from isaac_appo.sim.engine import EngineError, EngineSpec


@pytest.mark.parametrize(
    ("field", "value"),
    [("num_envs", 0), ("substeps", 0), ("threads", 0), ("control_dt", 0.0), ("control_dt", float("nan"))],
)
def test_impossible_numbers_are_refused_by_name(field: str, value: float) -> None:
    good = {"model_path": "m.xml", "num_envs": 1, "device": "cpu", "control_dt": 0.01, "substeps": 1}
    assert EngineSpec(**good).threads == 1
    with pytest.raises(EngineError, match=f"{field}={value}"):
        EngineSpec(**{**good, field: value})
