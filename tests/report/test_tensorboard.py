from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from isaac_appo.report.tensorboard import TensorboardSink


def read(directory: Path) -> dict[str, list[tuple[int, float]]]:
    accumulator = EventAccumulator(str(directory))
    accumulator.Reload()
    return {
        tag: [(event.step, event.value) for event in accumulator.Scalars(tag)] for tag in accumulator.Tags()["scalars"]
    }


def test_rl_games_tags_on_rl_games_axes(tmp_path: Path) -> None:
    sink = TensorboardSink(tmp_path)
    sink.write(4096, 1, 3.7, {"losses/a_loss": 0.25, "rewards/step": float("nan")})
    sink.write(8192, 2, 7.9, {"losses/a_loss": 0.5, "rewards/step": 12.0, "episode_lengths/step": 64.0, "fps/10s": 2.0})
    sink.close()
    assert read(tmp_path) == {
        "losses/a_loss": [(4096, 0.25), (8192, 0.5)],
        "rewards/step": [(8192, 12.0)],
        "rewards/iter": [(2, 12.0)],
        "rewards/time": [(7, 12.0)],
        "episode_lengths/step": [(8192, 64.0)],
        "episode_lengths/iter": [(2, 64.0)],
        "episode_lengths/time": [(7, 64.0)],
        "fps/10s": [(8192, 2.0)],
    }


def test_a_resumed_run_hides_what_is_done_again(tmp_path: Path) -> None:
    for start, values in ((0, {100: 1.0, 200: 2.0, 300: 3.0}), (200, {300: 30.0})):
        sink = TensorboardSink(tmp_path, start)
        for env_steps, value in values.items():
            sink.write(env_steps, 1, 0.0, {"info/kl": value})
        sink.close()
    assert read(tmp_path)["info/kl"] == [(100, 1.0), (200, 2.0), (300, 30.0)]
