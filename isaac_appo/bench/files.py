"""Reports as Markdown."""

from __future__ import annotations

from typing import Any, List, Mapping, Optional, Sequence

from isaac_appo.bench.window import STAGES

Row = Sequence[str]


def table(head: Row, rows: Sequence[Row]) -> str:
    """A Markdown table; the first column is text, the others are numbers."""
    lines = [f"| {' | '.join(head)} |", "|" + "|".join(["---", *["--:"] * (len(head) - 1)]) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def spread(value: Optional[Mapping[str, float]], form: str = "{:,.0f}", scale: float = 1.0) -> str:
    """``median (low to high)``, or a dash."""
    if value is None:
        return "-"
    median, low, high = (form.format(scale * value[key]) for key in ("median", "low", "high"))
    return f"{median} ({low} to {high})"


def machine_lines(report: Mapping[str, Any]) -> str:
    """What it was measured on, and what to think of it."""
    m = report["machine"]
    versions = ", ".join(f"{name} {version}" for name, version in m["versions"].items())
    lines = [f"{m['cpu']}, {m['cores']} cores, {m['memory_gib']} GiB; Python {m['python']}, {versions}."]
    lines += [f"Warning: {text}." for text in report["warnings"]]
    return "\n".join(lines + ([f"**FAILED**: {report['failed']}"] if report["failed"] else []))


def problem_line(problem: Mapping[str, Any]) -> str:
    """The problem in one line."""
    p = problem
    return (
        f"{p['task']}, {p['num_envs']} envs, horizon {p['horizon']}, {p['epochs']} epochs of {p['minibatches']} "
        f"minibatches of {p['minibatch_size']}, network {'-'.join(map(str, p['network'] or []))}, "
        f"{p['substeps']} substeps"
    )


def suite_markdown(report: Mapping[str, Any]) -> str:
    """The report of the bench."""
    parts = ["# Bench", problem_line(report["problem"]), machine_lines(report), _speeds(report)]
    if report["overlap"]:
        parts += ["## Overlap", _OVERLAP_TEXT, _overlaps(report["overlap"])]
    if report["comparisons"]:
        rows = [[name, c["of"], c["to"], spread(c, "{:.2f}"), str(c["n"])] for name, c in report["comparisons"].items()]
        head = ["ratio of FPS", "of", "to", "median (min to max)", "rounds"]
        parts += ["## Comparisons", "Round by round, over the rounds in which both were accepted.", table(head, rows)]
    parts += ["## Where the time goes", "Core-microseconds per sample, median over blocks.", _stages(report)]
    if report.get("memory"):
        rows = [[name, f"{mib:,.0f}"] for name, mib in report["memory"].items()]
        parts += ["## Peak memory", "Each in a process of its own.", table(["scenario", "MiB"], rows)]
    return "\n\n".join(parts) + "\n"


_OVERLAP_TEXT = (
    "Tc and Tl are the times of collecting and learning alone, Ta that of an update: S = (Tc+Tl)/Ta, "
    "O = max(Tc,Tl)/Ta, H = (Tc+Tl-Ta)/min(Tc,Tl), R = FPS of training / FPS of the simulation alone. "
    "The bound is max(Tc, Tl, core-seconds of both / cores)."
)


def _speeds(report: Mapping[str, Any]) -> str:
    rows: List[Row] = []
    for name, s in report["scenarios"].items():
        blocks = f"{s['accepted']} of {s['accepted'] + len(s['rejected'])}"
        rows.append([name, s["what"], spread(s["fps"]), spread(s["update_s"], "{:.1f}", 1e3), blocks])
    return table(["scenario", "what", "env steps/s", "ms per update", "blocks accepted"], rows)


def _overlaps(overlap: Mapping[str, Any]) -> str:
    rows: List[Row] = []
    for name, o in overlap.items():
        ratios = [spread(o[key], "{:.2f}") for key in ("S", "O", "H", "R")]
        least = o["bound"]
        rows.append([name, *ratios, f"{least['fps']:,.0f} ({least['by']})", spread(o["share_of_bound"], "{:.2f}")])
    return table(["scenario", "S", "O", "H", "R", "bound, env steps/s", "share of it"], rows)


def _stages(report: Mapping[str, Any]) -> str:
    rows: List[Row] = []
    for name, s in report["scenarios"].items():
        stages = s["core_s_per_sample_by_stage"]
        cells = [f"{1e6 * stages[stage]:.2f}" if stages else "-" for stage in STAGES]
        rows.append([name, *cells, spread(s["core_s_per_sample"], "{:.2f}", 1e6)])
    return table(["scenario", *STAGES, "all"], rows)
