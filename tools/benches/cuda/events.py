"""The work of steps on a CUDA device, from the events that torch.profiler writes as a Chrome trace. Pure: events in, figures out.

An event is a dictionary with name, cat, ts and dur in microseconds. For work of the device, args has a stream. Work and the call
that queued it have an equal correlation. Steps are marked by record_function(STEP). Only events within steps count, because the
profiler itself waits for the device at its end.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

Event = dict[str, Any]
Interval = tuple[float, float]

STEP = "penstock step"
OURS = "penstock::"  # in the name of each of our kernels
MESSAGES = "nccl"  # with which the names of NCCL's begin
COPIES = ("gpu_memcpy", "gpu_memset")
CALLS = ("cuda_runtime", "cuda_driver")

# Calls in which the host waits for the device.
WAITING = frozenset({
    "cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize", "cudaMemcpy", "cudaMemcpy2D", "cudaMemcpyToSymbol",
    "cudaMemcpyFromSymbol", "cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize", "cuMemcpyDtoH", "cuMemcpyHtoD",
})  # fmt: skip
# Calls that make or give back memory of the device, or pinned memory.
ALLOCATING = frozenset({
    "cudaMalloc", "cudaMallocAsync", "cudaMallocFromPoolAsync", "cudaMallocHost", "cudaHostAlloc", "cudaHostRegister", "cudaFree",
    "cudaFreeAsync", "cudaFreeHost", "cuMemAlloc", "cuMemAllocAsync", "cuMemCreate", "cuMemMap", "cuMemFree", "cuMemHostAlloc",
})  # fmt: skip


@dataclass
class StepFigures:
    """Per step; milliseconds of the device. None where the events do not tell, and `unseen` says why."""

    launches: float
    kernels_ms: float
    copies_ms: float
    copied_bytes: float
    overlap: float | None
    waits: float | None
    allocations: float | None
    calls: dict[str, int] = field(default_factory=dict)  # of all steps: the waits and allocations by their names
    kernels: dict[str, list[float]] = field(default_factory=dict)  # launches and milliseconds of each, the longest first
    unseen: str = ""


def call_name(event: Event) -> str:
    """The name without the version that CUPTI adds to some names: cudaMemcpy_v3020, cuMemAlloc_v2, cudaMemcpyAsync_ptsz."""
    return re.sub(r"(_v\d+|_ptsz|_ptds)+$", "", event["name"])


def kernel_name(event: Event) -> str:
    """The name without return type, namespaces and parameters, but with template arguments."""
    name = re.sub(r"\w+::|\(anonymous namespace\)::|^void ", "", event["name"])
    return re.sub(r"\((?!\w+\)\d).*", "", name)  # and a number's type within a template stays


def by_kernel(kernels: Iterable[Event], n_steps: int) -> dict[str, list[float]]:
    """Launches and milliseconds per step."""
    found: dict[str, list[float]] = {}
    for one in kernels:
        of = found.setdefault(kernel_name(one), [0.0, 0.0])
        of[0] += 1 / n_steps
        of[1] += one["dur"] * 1e-3 / n_steps
    return {name: [round(count, 2), round(ms, 4)] for name, (count, ms) in sorted(found.items(), key=lambda item: -item[1][1])}


def is_step(event: Event) -> bool:
    return event.get("cat") == "user_annotation" and event.get("name") == STEP


def interval(event: Event) -> Interval:
    return event["ts"], event["ts"] + event.get("dur", 0)


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same moments as disjoint intervals in ascending order."""
    found: list[Interval] = []
    for begin, end in sorted(intervals):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        elif end > begin:
            found.append((begin, end))
    return found


def length(intervals: Iterable[Interval]) -> float:
    return sum(end - begin for begin, end in intervals)


def common(one: Sequence[Interval], other: Sequence[Interval]) -> float:
    """How long both are, of disjoint ascending intervals."""
    shared, i, j = 0.0, 0, 0
    while i < len(one) and j < len(other):
        shared += max(0.0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] <= other[j][1]:
            i += 1
        else:
            j += 1
    return shared


def place(event: Event) -> tuple[Any, Any]:
    return event["args"].get("device"), event["args"]["stream"]


class Sorted:
    """The events from the begin of the first step to the end of the last step, by kind."""

    def __init__(self, events: Iterable[Event]) -> None:
        timed = [event for event in events if event.get("ph", "X") == "X"]
        steps = [event for event in timed if is_step(event)]
        if not steps:
            raise ValueError(f"the events hold no {STEP!r}; mark each step with record_function({STEP!r})")
        self.n_steps = len(steps)
        begin, end = steps[0]["ts"], 0.0
        for step in steps:
            begin, end = min(begin, step["ts"]), max(end, interval(step)[1])
        self.calls = [one for one in timed if one.get("cat") in CALLS and begin <= one["ts"] <= end]
        # Work of the device for a step may come after the end of the step on the host. No other work is queued there.
        on_device = [one for one in timed if one.get("cat") in ("kernel", *COPIES) and one["ts"] >= begin]
        kernels = [one for one in on_device if one["cat"] == "kernel"]
        self.ours = [one for one in kernels if OURS in one["name"]]
        messages = [one for one in kernels if one["name"].startswith(MESSAGES)]
        self.compute = [one for one in kernels if OURS not in one["name"] and not one["name"].startswith(MESSAGES)]
        # Copies on a stream of the program belong to the program.
        computing = {place(one) for one in self.compute}
        self.copies = [one for one in on_device if one["cat"] in COPIES and place(one) not in computing]
        self.exchange = [*self.ours, *messages, *self.copies]
        self.from_pageable = [one for one in self.copies if "Pageable" in one["name"]]


def why_calls_are_unseen(found: Sorted) -> str:
    """The reason why the calls of the host cannot be counted; empty if they can. The profiler might not see a CUDA runtime that
    is linked into a plugin."""
    if not found.exchange:
        return "the profiler shows no work of the exchange on the device"
    seen = {call["args"].get("correlation") for call in found.calls if "args" in call}
    missing = [work for work in found.exchange if work["args"].get("correlation") not in seen]
    if missing:
        return f"the profiler shows {missing[0]['name'][:60]!r} on the device, but not the call that queued it"
    return ""


def overlap(found: Sorted) -> float | None:
    """The share of the exchange's time on the device during which the program computes there; None if there is no exchange."""
    exchange = union(map(interval, found.exchange))
    return common(exchange, union(map(interval, found.compute))) / length(exchange) if exchange else None


def figures(events: Iterable[Event]) -> StepFigures:
    """The figures of the marked steps. ValueError if no step is marked."""
    found = Sorted(events)
    unseen = why_calls_are_unseen(found)
    names = Counter(call_name(call) for call in found.calls)
    waiting = {name: count for name, count in names.items() if name in WAITING}
    if found.from_pageable:  # such a call has the name of a call that returns at once
        waiting["copy from or to pageable memory"] = len(found.from_pageable)
    allocating = {name: count for name, count in names.items() if name in ALLOCATING}
    steps = found.n_steps
    return StepFigures(
        launches=len(found.ours) / steps,
        kernels_ms=sum(one["dur"] for one in found.ours) * 1e-3 / steps,
        copies_ms=sum(one["dur"] for one in found.copies) * 1e-3 / steps,
        copied_bytes=sum(one["args"].get("bytes", 0) for one in found.copies) / steps,
        overlap=overlap(found),
        waits=None if unseen else sum(waiting.values()) / steps,
        allocations=None if unseen else sum(allocating.values()) / steps,
        calls={} if unseen else {**waiting, **allocating},
        kernels=by_kernel(found.ours, steps),
        unseen=unseen,
    )
