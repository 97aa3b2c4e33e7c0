"""Write configuration.md and metrics.md from the schema and the table of metrics: python docs/generate.py."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Dict, Iterator, List, Tuple

from isaac_appo.config.errors import show
from isaac_appo.config.option import rules_of
from isaac_appo.config.read import default_of
from isaac_appo.config.schema import RunConfig
from isaac_appo.report.metrics import METRICS

HERE = Path(__file__).resolve().parent
_BOUNDS = (("ge", ">="), ("gt", ">"), ("le", "<="), ("lt", "<"))


def allowed(rules: Any) -> str:
    """The values that a key may have, in a few characters."""
    if "choices" in rules:
        return ", ".join(f"`{choice}`" for choice in rules["choices"])
    if "rule" in rules:
        return {"is empty": "not empty"}.get(rules["rule"], rules["rule"].replace("must be ", ""))
    return ", ".join(f"{sign} {rules[key]}" for key, sign in _BOUNDS if key in rules)


def rows_of(config: Any, prefix: str = "") -> Iterator[Tuple[str, ...]]:
    """Key, default, allowed values and meaning of every key, sections after the keys of their parent."""
    sections: List[Tuple[str, Any]] = []
    for item in fields(config):
        rules, default = rules_of(item), default_of(item)
        if is_dataclass(default):
            sections.append((f"{prefix}{item.name}.", default))
        elif not rules.get("silent"):
            note = f" No effect: {rules['inert']}." if "inert" in rules else ""
            note = f" Only with sim={rules['engine']}." if "engine" in rules else note
            note += f" Refused: {rules['refused']}." if "refused" in rules else ""
            yield prefix + item.name, f"`{show(default)}`", allowed(rules), f"{rules['help']}.{note}"
    for name, section in sections:
        yield from rows_of(section, name)


def table(head: Tuple[str, ...], rows: Iterator[Tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


def configuration() -> str:
    """configuration.md."""
    rows = ((f"`{key}`", *rest) for key, *rest in rows_of(RunConfig))
    head = ("key", "default", "allowed", "meaning")
    return (
        "# Configuration\n\nEvery key of `isaac-appo train`, made from `isaac_appo/config/schema.py` by "
        "`docs/generate.py`. The task's own\nsettings are `task.env.*`, in `cfg/task/*.yaml`; the network is rl_games' "
        "block under `train.params.network`.\nDefaults are the schema's; a task's train YAML sets its own. "
        "`isaac-appo train task=Ant --cfg job --resolve` prints\nwhat a command line comes to.\n\n"
        f"{table(head, rows)}\n"
    )


def metrics() -> str:
    """metrics.md."""
    rows = ((f"`{key}`", metric.unit, metric.meaning) for key, metric in METRICS.items())
    return (
        "# Metrics\n\nEvery key that a run logs, to `metrics.csv`, TensorBoard and Weights & Biases alike, made from "
        "`isaac_appo/report/metrics.py` by\n`docs/generate.py`. rl_games' tags come first, unchanged; Sample Factory's "
        "names stand beside ours. `lag/rows_at_K` counts the\ntrained rows of lag K; `Episode/*` are a task's own "
        "terms. `metrics.csv` and W&B have `update`, `env_steps` and `elapsed_s` in every row, W&B's x-axis being "
        "`env_steps`; the\ncopies that end in `/iter` and `/time` are TensorBoard's, which has one axis only."
        f"\n\n{table(('key', 'unit', 'meaning'), rows)}\n"
    )


PAGES: Dict[str, Any] = {"configuration.md": configuration, "metrics.md": metrics}

if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
