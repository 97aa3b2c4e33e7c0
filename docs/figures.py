"""Draw schedules.png from the programs themselves, on a simulated clock: python docs/figures.py."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any, Dict, List, NamedTuple, Tuple

from isaac_appo.schedule.executors.base import Handler
from isaac_appo.schedule.executors.virtual import VirtualExecutor
from isaac_appo.schedule.program import CALIBRATION, LEARNER, Free, Lockstep, Op, Program, policy_name

PNG = Path(__file__).resolve().with_name("schedules.png")
UPDATES, HORIZON, MINIBATCHES = 6, 8, 4
SCHEDULES: Dict[str, Program] = {
    "schedule=sync": Lockstep(HORIZON, 1, MINIBATCHES, UPDATES, lag=0),
    "schedule=lockstep": Lockstep(HORIZON, 1, MINIBATCHES, UPDATES, lag=1),
    "schedule=free": Free(HORIZON, 1, MINIBATCHES, UPDATES, lead=2 * HORIZON),
}
# How long each slab takes to be collected and to be trained on; no two are alike in a real run either.
SECONDS = {"step": (1.0, 1.0, 1.2, 0.9, 1.3, 1.0), "minibatch": (1.0, 0.8, 1.1, 0.7, 1.2, 0.8)}
PARTS = {"step": HORIZON, "minibatch": MINIBATCHES}
_COLOURS = ("#c9c9c9", "#8fb8de", "#f2b880", "#9fcf9b", "#d9a5d3", "#e8dc86", "#f09a95")


class Block(NamedTuple):
    """Work of one stream on one slab with one version: the one that acts, or the one that comes of it."""

    stream: str
    slab: int
    version: int
    begin: float
    end: float


class Recorder:
    """Plays a program on the simulated clock and notes its blocks."""

    def __init__(self, program: Program) -> None:
        self.blocks: List[Block] = []
        self._acting = 0
        handlers: Dict[str, Handler] = {
            **dict.fromkeys(
                {op.name for ops in program.streams().values() for op in ops if isinstance(op, Op)}, _nothing
            ),
            "adopt": self._adopt,
            "pick": self._pick,
            "step": self._step,
            "minibatch": self._minibatch,
        }
        self.clock = VirtualExecutor(handlers, {"unread": lambda snapshot: True}, durations=self._seconds)
        self.clock.run(program.streams())

    def _seconds(self, stream: str, op: Op) -> float:
        if op.name not in SECONDS:
            return 0.0
        slab = op.args[1 if op.name == "step" else 0]
        return 0.0 if slab == CALIBRATION else SECONDS[op.name][slab] / PARTS[op.name]

    def _adopt(self, worker: int, slab: int, snapshot: int) -> None:
        self._acting = snapshot

    def _pick(self, worker: int) -> None:
        self._acting = self.clock.recorded["snapshot"]

    def _step(self, worker: int, slab: int, t: int) -> None:
        if slab != CALIBRATION:
            self._work("step", policy_name(worker), slab, self._acting)

    def _minibatch(self, slab: int, epoch: int, number: int) -> None:
        self._work("minibatch", LEARNER, slab, slab + 1)

    def _work(self, name: str, stream: str, slab: int, version: int) -> None:
        begin, end = self.clock.now, self.clock.now + SECONDS[name][slab] / PARTS[name]
        for i, block in enumerate(self.blocks):  # goes on with what it has begun
            if block[:3] == (stream, slab, version):
                self.blocks[i] = block._replace(end=end)
                return
        self.blocks.append(Block(stream, slab, version, begin, end))


def _nothing(*args: int) -> None:
    """An operation that takes no time."""


def timelines() -> Dict[str, List[Block]]:
    """The blocks of every schedule, on the same durations."""
    return {name: Recorder(program).blocks for name, program in SCHEDULES.items()}


def digest(found: Dict[str, List[Block]]) -> str:
    """What the picture shows, in a few characters; stands in the picture too."""
    text = repr(
        [(name, [(*b[:3], round(b.begin, 6), round(b.end, 6)) for b in blocks]) for name, blocks in found.items()]
    )
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def draw(path: Path) -> None:
    """One panel per schedule, one row per stream, blocks in the colour of their version."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    found = timelines()
    width = max(block.end for blocks in found.values() for block in blocks)
    figure, panels = pyplot.subplots(len(found), 1, figsize=(11.0, 4.9), dpi=110, sharex=True, layout="constrained")
    for axes, (name, blocks) in zip(panels, found.items()):
        for block in blocks:
            _draw_block(axes, block)
        end = max(block.end for block in blocks)
        axes.axvline(end, color="#555555", linewidth=0.8, linestyle=":")
        axes.set_title(
            f"{name}: {UPDATES} updates in the time of {end:.1f} collections",
            loc="left",
            fontsize=10,
            fontweight="bold",
        )
        axes.set(
            xlim=(0.0, width * 1.01), ylim=(1.5, -0.5), yticks=(0, 1), yticklabels=("policy stream", "learner stream")
        )
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
    panels[-1].set_xticks([])
    panels[-1].set_xlabel("time. Colours are versions: the one that acts, and the one that an update makes")
    figure.savefig(path, metadata={"Software": None, "Description": digest(found)})
    pyplot.close(figure)


def _draw_block(axes: Any, block: Block) -> None:
    row = 1 if block.stream == LEARNER else 0
    span: Tuple[float, float] = (block.begin, block.end - block.begin)
    axes.broken_barh([span], (row - 0.4, 0.8), facecolor=_COLOURS[block.version], edgecolor="white", linewidth=1.5)
    text = f"slab {block.slab}\n→ v{block.version}" if row else f"slab {block.slab}\nv{block.version}"
    if span[1] < 0.5:
        text = f"v{block.version}"
    axes.text(
        block.begin + span[1] / 2, row, text, ha="center", va="center", fontsize=8, color="#222222", linespacing=1.1
    )


if __name__ == "__main__":
    draw(PNG)
