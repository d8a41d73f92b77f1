"""Figures from the events of a profiler, which are made up here: no device is needed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benches.cuda import events  # noqa: E402

COMPUTE, SET = 7, 20  # streams


def step(begin: float, end: float) -> events.Event:
    return {"ph": "X", "cat": "user_annotation", "name": events.STEP, "ts": begin, "dur": end - begin, "args": {}}


def call(name: str, ts: float, correlation: int = 0, cat: str = "cuda_runtime") -> events.Event:
    return {"ph": "X", "cat": cat, "name": name, "ts": ts, "dur": 2.0, "args": {"correlation": correlation}}


def work(cat: str, name: str, stream: int, begin: float, end: float, correlation: int, **more: Any) -> events.Event:
    args = {"device": 0, "stream": stream, "correlation": correlation, **more}
    return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": end - begin, "args": args}


def queued(cat: str, name: str, stream: int, begin: float, end: float, correlation: int, **more: Any) -> list[events.Event]:
    caller = "cudaLaunchKernel" if cat == "kernel" else "cudaMemcpyAsync"
    return [call(caller, begin - 3, correlation), work(cat, name, stream, begin, end, correlation, **more)]


SELECT = "void penstock::kernels::cuda::(anonymous namespace)::collect<4>(float const*)"


def made_up() -> list[events.Event]:
    """Two steps of 1000 us: in each 400 us of products, a kernel of 100 us half beside them and a copy of 50 us after them."""
    found: list[events.Event] = []
    for number in range(2):
        begin = 1000.0 + 2000 * number
        found += [step(begin, begin + 1000)]
        found += queued("kernel", "sgemm_128x64", COMPUTE, begin + 100, begin + 500, 10 * number + 1)
        found += queued("kernel", SELECT, SET, begin + 450, begin + 550, 10 * number + 2)
        found += queued("gpu_memcpy", "Memcpy DtoH (Device -> Pinned)", SET, begin + 600, begin + 650, 10 * number + 3, bytes=800)
    return found


def test_work_and_bytes_count_per_step():
    found = events.figures(made_up())
    assert (found.launches, found.kernels_ms, found.copies_ms, found.copied_bytes) == (1, 0.1, 0.05, 800)


def test_each_kernel_counts_by_its_name():
    begin = "void penstock::kernels::cuda::treat_elements<256u, penstock::kernels::cuda::(anonymous namespace)::Widen<(penstock::kernels::ValueType)3> >"
    longest = work("kernel", f"{begin}(penstock::kernels::cuda::(anonymous namespace)::Widen<(penstock::kernels::ValueType)3>, unsigned)", SET, 1700, 1900, 91)
    kernels = events.figures([*made_up(), longest, work("kernel", "penstock::look(penstock::Arrays<int>)", SET, 1900, 1901, 92)]).kernels
    assert list(kernels.items()) == [("collect<4>", [1, 0.1]), ("treat_elements<256u, Widen<(ValueType)3> >", [0.5, 0.1]), ("look", [0.5, 0.0005])]


def test_overlap_is_the_share_of_the_exchange_that_lies_beside_compute():
    assert events.figures(made_up()).overlap == pytest.approx(50 / 150)


def test_compute_that_lies_over_itself_counts_once():
    beside = queued("kernel", "relu", 8, 1440, 1520, 90)  # on another stream, over the end of the first step's products
    assert events.figures([*made_up(), *beside]).overlap == pytest.approx((70 + 50) / 300)


def test_calls_that_wait_and_allocate_count_within_steps_only():
    within = [call("cudaStreamSynchronize", 1700), call("cuMemAlloc_v2", 1710, cat="cuda_driver"), call("cudaMemcpy_v3020", 3100)]
    outside = [call("cudaDeviceSynchronize", 900), call("cudaDeviceSynchronize", 4500), call("cudaMalloc", 500)]
    found = events.figures([*made_up(), *within, *outside])
    assert (found.waits, found.allocations) == (1, 0.5)
    assert found.calls == {"cudaStreamSynchronize": 1, "cudaMemcpy": 1, "cuMemAlloc": 1}


def test_calls_that_only_queue_or_ask_are_no_waits():
    asking = [call(name, 1700) for name in ("cudaEventQuery", "cudaStreamWaitEvent", "cudaMemcpyAsync", "cudaEventRecord")]
    found = events.figures([*made_up(), *asking])
    assert (found.waits, found.allocations, found.calls) == (0, 0, {})


def test_a_copy_from_pageable_memory_is_a_wait():
    copy = queued("gpu_memcpy", "Memcpy HtoD (Pageable -> Device)", SET, 1800, 1850, 91)
    assert events.figures([*made_up(), *copy]).waits == 0.5


def test_a_copy_on_the_programs_own_stream_is_not_the_exchanges():
    copy = queued("gpu_memcpy", "Memcpy DtoD (Device -> Device)", COMPUTE, 1800, 1900, 92, bytes=1 << 20)
    found = events.figures([*made_up(), *copy])
    assert (found.copies_ms, found.copied_bytes) == (0.05, 800)


def test_kernels_of_nccl_are_exchange_and_not_compute():
    message = queued("kernel", "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 21, 1700, 1800, 93)
    found = events.figures([*made_up(), *message])
    assert found.launches == 1 and found.overlap == pytest.approx(100 / 400)


def test_work_whose_call_is_not_seen_leaves_counts_open():
    hidden = work("kernel", SELECT, SET, 1700, 1720, 94)
    found = events.figures([*made_up(), hidden, call("cudaStreamSynchronize", 1750)])
    assert found.waits is None and found.allocations is None and found.calls == {}
    assert "collect" in found.unseen and "not the call" in found.unseen
    assert found.launches == 1.5


def test_no_work_of_the_exchange_at_all_is_said():
    found = events.figures([step(0, 100), *queued("kernel", "sgemm", COMPUTE, 20, 40, 1)])
    assert found.overlap is None and found.waits is None and "no work of the exchange" in found.unseen


def test_events_without_a_step_are_refused_with_what_to_do():
    with pytest.raises(ValueError, match="record_function"):
        events.figures(queued("kernel", SELECT, SET, 20, 40, 1))


def test_events_that_are_no_spans_are_passed_over():
    others = [{"ph": "M", "name": "process_name", "args": {}}, {"ph": "s", "id": 1, "cat": "ac2g", "name": "ac2g", "ts": 1200.0}]
    assert events.figures([*others, *made_up()]) == events.figures(made_up())
