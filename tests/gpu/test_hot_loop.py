"""On the device nothing waits for the host's sake, and graphs do what the launches they replace do."""

from __future__ import annotations

import contextlib
from typing import Any, Iterator, List

import pytest
import torch

from isaac_appo.schedule.device_pipeline import DevicePipeline
from tests.gpu.layers import CUDA, LAYERS, PHYSICS, pipeline_of
from tests.helpers import weights

BAD = ("DtoH (Device -> Pageable)", "HtoD (Pageable -> Device)", "cudaStreamSynchronize", "cudaDeviceSynchronize")
"""What a profile calls a copy from or to memory that makes the host wait, and a wait."""


@contextlib.contextmanager
def waits_are_errors(layer: str) -> Iterator[None]:
    """On CUDA by torch's debug mode; the fake layer always refuses them."""
    if layer == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if layer == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def host_copies(names: List[str]) -> List[str]:
    """Those events of a profile that make the host wait or copy."""
    return [name for name in names if any(bad in name for bad in BAD)]


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("task", PHYSICS)
@pytest.mark.parametrize("layer", LAYERS)
def test_no_stream_makes_the_host_wait(layer: str, task: str, graphs: bool) -> None:
    pipeline, reports = pipeline_of(layer, task, graphs=graphs)
    with waits_are_errors(layer):
        pipeline.run()
    assert [report.update for report in reports] == list(range(10)) and reports[-1].metrics["loss/grad_norm"] > 0


@pytest.mark.parametrize("layer", LAYERS)
def test_one_that_does_is_caught(layer: str) -> None:
    pipeline, _ = pipeline_of(layer, graphs=layer == "fake")  # a recording is what the fake layer inspects
    collector = pipeline.workers[0].collector
    bootstrap = collector.bootstrap

    def peeks(slab: int) -> None:
        bootstrap(slab)
        float(collector.obs.sum())

    collector.bootstrap = peeks  # type: ignore[method-assign]
    with waits_are_errors(layer), pytest.raises(RuntimeError, match=r"synchroniz|captured kernel's result is read"):
        pipeline.run()


def test_what_makes_the_host_wait_is_told_from_what_does_not() -> None:
    names = ["Memcpy DtoD (Device -> Device)", "Memcpy DtoH (Device -> Pinned)", "cudaGraphLaunch", "aten::copy_"]
    assert host_copies(names) == []
    bad = ["Memcpy DtoH (Device -> Pageable)", "cudaStreamSynchronize"]
    assert host_copies([*names, *bad]) == bad


@pytest.mark.parametrize("layer", [CUDA])
def test_the_profiler_counts_no_host_copies_in_the_loops(layer: str) -> None:
    """From one report to another, ten updates later: pinned copies of the reports, and nothing else."""
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    pipeline, _ = pipeline_of(layer, PHYSICS[0], num_updates=30)
    plain = pipeline._on_boundary

    def watched(report: Any) -> None:
        plain(report)
        if report.update == 15:
            profiler.start()
        if report.update == 25:
            profiler.stop()

    pipeline._on_boundary = watched
    pipeline.run()
    names = [event.name for event in profiler.events()]
    if not any("cudaGraphLaunch" in name for name in names):
        pytest.skip("this machine's profiler sees no CUDA calls")
    starting = {"cudaDeviceSynchronize": 1}  # the profiler's own, as it starts and stops
    bad = host_copies(names)
    assert [name for name in bad if starting.get(name, 0) == 0] == [] and bad.count("cudaDeviceSynchronize") <= 2


@pytest.mark.parametrize("lag", [0, 1])
@pytest.mark.parametrize("layer", LAYERS)
def test_replay_is_eager(layer: str, lag: int) -> None:
    """Exactly on the fake layer; on a GPU to the order of sums. A value that a graph had frozen would show."""
    replayed, reports = pipeline_of(layer, lag=lag)
    eager, said = pipeline_of(layer, lag=lag, graphs=False)
    for pipeline in (replayed, eager):
        pipeline.run()
    assert len(replayed._cuda._captured) > 8 and not eager._cuda._captured
    got, expected = (pipeline.learner.policy.parameters for pipeline in (replayed, eager))
    start = pipeline_of(layer)[0].learner.policy.parameters
    assert (expected - start).abs().max() > 1e-3
    if layer == "fake":
        assert torch.equal(weights(replayed), weights(eager))
    torch.testing.assert_close(got, expected, atol=2e-5, rtol=1e-3)
    assert int(replayed.learner.policy.version) == 10
    assert [r.lag for r in reports] == [r.lag for r in said]


@pytest.mark.parametrize("layer", LAYERS)
def test_what_a_graph_freezes_shows(layer: str) -> None:
    """The clock of the noise in a tensor that does not advance: replays draw what the capture drew."""
    expected, _ = pipeline_of(layer)
    frozen, _ = pipeline_of(layer)
    frozen.workers[0].collector.record = still(frozen)  # type: ignore[method-assign]
    for pipeline in (expected, frozen):
        pipeline.run()
    difference = frozen.learner.policy.parameters - expected.learner.policy.parameters
    assert difference.abs().max() > 2e-5


def still(pipeline: DevicePipeline) -> Any:
    collector = pipeline.workers[0].collector
    record = collector.record

    def without_clock(slab: int, t: int) -> None:
        record(slab, t)
        collector._step.sub_(1)

    return without_clock
