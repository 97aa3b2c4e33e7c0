from __future__ import annotations

import math
from pathlib import Path

from isaac_appo.sweep.plan import Job
from isaac_appo.sweep.summary import Row, final_reward, read_summary, row_of, write_summary


def test_the_final_reward_is_the_last_finite_one(tmp_path: Path) -> None:
    assert math.isnan(final_reward(tmp_path))
    (tmp_path / "metrics.csv").write_text(
        "update,env_steps,elapsed_s,rewards/step\n1,8,0.1,1.0\n2,16,0.2,3.5\n3,24,0.3,\n"
    )
    assert final_reward(tmp_path) == 3.5
    job = Job(4, ["x"], {"seed": "1", "schedule.lag": "2"}, tmp_path)
    assert row_of(job, 0, 2.0) == Row(4, "seed=1 schedule.lag=2", 0, str(tmp_path), 3.5, 2.0)


def test_the_file_has_a_row_for_each_job_in_order_and_reads_back(tmp_path: Path) -> None:
    rows = [Row(2, "seed=2", -11, "/r/s2", math.nan, 3.0), Row(1, "task=a,b seed=1", 0, "/r/s1", 12.25, 61.04)]
    write_summary(tmp_path / "s.csv", rows)
    assert (tmp_path / "s.csv").read_text().splitlines() == [
        "job,overrides,exit_code,run_dir,final_reward,seconds",
        '1,"task=a,b seed=1",0,/r/s1,12.25,61.0',
        "2,seed=2,-11,/r/s2,,3.0",
    ]
    back = read_summary(tmp_path / "s.csv")
    assert back[0] == Row(1, "task=a,b seed=1", 0, "/r/s1", 12.25, 61.0) and math.isnan(back[1].final_reward)
    assert read_summary(tmp_path / "none.csv") == []
