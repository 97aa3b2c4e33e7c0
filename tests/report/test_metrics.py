from __future__ import annotations

from isaac_appo.report.metrics import METRICS, undocumented


def test_every_metric_has_a_meaning_and_rl_games_tags_are_there() -> None:
    assert all(metric.meaning.strip() for metric in METRICS.values())
    for family in ("rewards", "shaped_rewards", "episode_lengths"):
        assert {f"{family}/{axis}" for axis in ("step", "iter", "time")} <= set(METRICS)
    tags = {
        "losses/a_loss", "losses/c_loss", "losses/entropy", "losses/bounds_loss", "info/last_lr", "info/lr_mul",
        "info/e_clip", "info/kl", "info/epochs", "performance/step_fps", "performance/step_inference_fps",
        "performance/step_inference_rl_update_fps", "performance/step_time", "performance/step_inference_time",
        "performance/rl_update_time",
    }  # fmt: skip
    assert tags <= set(METRICS)


def test_undocumented_keys_are_found() -> None:
    assert undocumented(["rewards/step", "Episode/rew_up", "scores/mean", "lag/men", "a"]) == ["a", "lag/men"]
