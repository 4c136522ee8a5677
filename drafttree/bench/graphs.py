"""Time of GPU work inside a CUDA graph, where launches cost next to nothing."""

# mypy: allow-untyped-calls
from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

import torch


def replay_seconds(calls: Sequence[Callable[[], object]], *, repeats: int = 50) -> float:
    """Median seconds of one call: all ``calls`` are captured in one graph, which is replayed ``repeats`` times.

    Calls that work on different buffers, as the layers of a model do, keep each other's data out of the cache. The
    calls must not wait for the host. Needs a CUDA device.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls:  # compiles what is compiled at the first call
            call()
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    seconds: list[float] = []
    for turn in range(repeats + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if turn >= 3:
            seconds.append(begin.elapsed_time(end) / 1e3 / len(calls))
    return statistics.median(seconds)
