from __future__ import annotations

import io

import pytest
from rich.console import Console

from isaac_appo.report.console import OffConsole, PlainConsole, RichPanel, make_console

METRICS = {
    "fps/10s": 26100.0, "fps/60s": 25000.0, "fps/300s": 24000.0, "rewards/step": 1234.56, "episode_lengths/step": 812.3,
    "info/kl": 0.0081, "info/last_lr": 3e-4, "lag/mean": 0.97, "lag/max": 1.0, "idle/policy": 0.12,
    "idle/learner": 0.03, "nan_envs": 2.0,
}  # fmt: skip
FIELDS = [
    "42.0 %", "2.75M/6.55M", "26.1k", "25.0k", "24.0k", "2:32", "1234.56", "812.3", "0.0081", "3.0e-04", "0.97",
    "12%", "3%", "168/400", "1:45",
]  # fmt: skip


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def panel(clock: Clock, **options: bool) -> tuple[RichPanel, io.StringIO]:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=120, **options)  # type: ignore[arg-type]
    return RichPanel(console, "Ant", 6_553_600, 400, clock), stream


def write(sink: OffConsole | RichPanel, update: int = 168, env_steps: int = 2_752_512) -> None:
    sink.write(env_steps, update, 105.0, METRICS)


def test_panel_shows_every_field() -> None:
    sink, stream = panel(Clock())
    write(sink)
    sink.close()
    text = stream.getvalue()
    assert [field for field in FIELDS if field not in text] == []
    assert "Ant" in text and "policy idle" in text and "\x1b[" in text


def test_panel_is_redrawn_a_few_times_a_second_and_ends_with_the_last_update() -> None:
    clock = Clock()
    sink, stream = panel(clock)
    for update in range(1000):
        clock.now = update * 0.001
        write(sink, update)
    sink.close()
    assert 5 <= stream.getvalue().count("policy idle") <= 8
    assert "999/400" in stream.getvalue()


def test_message_comes_above_the_panel_and_summary_below() -> None:
    sink, stream = panel(Clock())
    write(sink)
    sink.message("[look] here")
    sink.summary("Done", ["evaluation 5 ± 1"])
    text = stream.getvalue()
    assert "[bold]" not in text
    assert text.index("[look] here") < text.rindex("policy idle") < text.index("evaluation 5 ± 1")
    drawn = text.count("policy idle")
    write(sink)
    sink.close()
    assert stream.getvalue().count("policy idle") == drawn


def test_what_is_not_known_yet_is_a_dash() -> None:
    stream = io.StringIO()
    sink = PlainConsole(stream, 0, 0, 5.0, Clock())
    sink.write(4096, 1, 0.5, {"rewards/step": float("nan")})
    assert stream.getvalue() == (
        "     - | step 4.1k | FPS -/-/- | ETA - | reward - | len - | KL - | LR - | lag -/- | idle P - L - | update 1"
        " | 0:00\n"
    )


def test_plain_line_has_every_field_in_one_row() -> None:
    stream = io.StringIO()
    write(PlainConsole(stream, 6_553_600, 400, 5.0, Clock()))
    text = stream.getvalue()
    assert [field for field in FIELDS if field not in text] == []
    assert text.count("\n") == 1 and len(text) < 180 and "\x1b" not in text


def test_plain_lines_are_rate_limited_and_the_last_update_is_shown() -> None:
    clock, stream = Clock(), io.StringIO()
    sink = PlainConsole(stream, 6_553_600, 400, 5.0, clock)
    for update in range(1, 101):  # 0.125 s apart: 12.5 s
        write(sink, update)
        clock.now += 0.125
    sink.close()
    shown = [line.split("update ")[1].split("/")[0] for line in stream.getvalue().splitlines()]
    assert shown == ["1", "41", "81", "100"]


@pytest.mark.parametrize(
    ("mode", "terminal", "term", "kind"),
    [
        ("auto", True, "xterm", RichPanel),
        ("auto", True, "dumb", PlainConsole),
        ("auto", False, "xterm", PlainConsole),
        ("plain", True, "xterm", PlainConsole),
        ("rich", False, "xterm", RichPanel),
        ("off", True, "xterm", OffConsole),
    ],
)
def test_mode(monkeypatch: pytest.MonkeyPatch, mode: str, terminal: bool, term: str, kind: type) -> None:
    monkeypatch.setenv("TERM", term)
    stream = Terminal() if terminal else io.StringIO()
    assert type(make_console(mode, "Ant", 1, 1, 5.0, stream)) is kind


def test_unknown_mode_lists_the_known_ones() -> None:
    with pytest.raises(ValueError, match="'fancy': must be one of auto, rich, plain, off"):
        make_console("fancy", "Ant", 1, 1, 5.0)


@pytest.mark.parametrize(("no_color", "coloured"), [("1", False), ("", True)])
def test_no_color(monkeypatch: pytest.MonkeyPatch, no_color: str, coloured: bool) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("NO_COLOR", no_color)
    stream = Terminal()
    sink = make_console("rich", "Ant", 6_553_600, 400, 5.0, stream)
    write(sink)  # type: ignore[arg-type]
    sink.close()
    assert ("\x1b[36m" in stream.getvalue()) is coloured


def test_off_shows_no_progress_but_messages_and_summary() -> None:
    stream = io.StringIO()
    sink = OffConsole(stream)
    write(sink)
    assert stream.getvalue() == ""
    sink.message("careful")
    sink.summary("Done", ["5"])
    assert stream.getvalue().startswith("careful\n---") and "\nDone\n  5\n" in stream.getvalue()


def test_the_last_update_is_shown_before_the_closing_block() -> None:
    stream, clock = io.StringIO(), iter(range(100))
    console = PlainConsole(stream, 100, 10, interval_s=1000.0, clock=lambda: float(next(clock)))
    console.write(10, 1, 1.0, {})
    console.write(100, 10, 2.0, {})
    console.summary("title", ["closing"])
    console.close()
    lines = stream.getvalue().splitlines()
    assert "update 10/10" in lines[1] and lines.index("  closing") > 1
    assert sum("update 10/10" in line for line in lines) == 1
