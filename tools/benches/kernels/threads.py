"""One thread against two that share the work of a call, where arithmetic is what takes the time. By the clock, not by processor time."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterator

import numpy as np

from benches.kernels.low_rank import scratch_of
from benches.kernels.rows import Goal, Row, World, aligned, pointer

THREADS = 2
count = ctypes.c_uint64


def row(what: str, call: Callable[[bool], None], result: Callable[[], list[np.ndarray]]) -> Row:
    """`call(threads)` runs the kernel, `result()` copies what it left: the same bits either way."""

    def check() -> None:
        call(False)
        alone = result()
        call(True)
        for one, several in zip(alone, result()):
            assert np.array_equal(one, several), "threads changed the result"

    return Row(what, {"one thread": lambda: call(False), "two threads": lambda: call(True)}, check,
               [Goal("one thread", "two threads", ">=", 1.6)], None, by_the_clock=True)


def products(world: World, rank: int) -> Row:
    side = math.isqrt(world.n)
    start, right = world.heavy_tailed(2, side * side), world.heavy_tailed(3, side * rank)
    work, out, p, q = start.copy(), np.zeros(side * side, np.float32), np.zeros(side * rank, np.float32), right.copy()
    scratch = scratch_of(world, side, side, rank)

    def call(threads: bool) -> None:
        q[:] = right
        world.door.bench_threads_products(pointer(work), pointer(out), pointer(p), pointer(q), count(side), count(side), count(rank), pointer(scratch), threads)

    def result() -> list[np.ndarray]:
        left = [array.copy() for array in (work, out, p, q)]
        work[:] = start
        return left

    return row(f"products of rank {rank}, {side} x {side}", call, result)


def row_selection(world: World, width: int) -> Row:
    height, k = world.n // width, width // 100
    x, indices = world.heavy_tailed(1, height * width), np.zeros(height * k, np.uint32)
    world.door.bench_threads_rows_scratch.restype = count
    scratch = aligned(world.door.bench_threads_rows_scratch(count(width)))

    def call(threads: bool) -> None:
        world.door.bench_threads_rows(pointer(x), count(height), count(width), count(k), pointer(indices), pointer(scratch), count(scratch.size), threads)

    return row(f"top-k of each row of {width}, 1 %", call, lambda: [indices.copy()])


def qsgd(world: World) -> Row:
    x, codes = world.heavy_tailed(), np.zeros(world.n, np.uint8)
    steps = np.zeros(world.n // 512, np.float32)

    def call(threads: bool) -> None:
        world.door.bench_threads_qsgd(pointer(x), count(world.n), pointer(steps), pointer(codes), threads)

    return row("QSGD, 8 bits, with the largest of 512", call, lambda: [steps.copy(), codes.copy()])


def rows(world: World) -> Iterator[Row]:
    world.door.bench_threads_resize(THREADS)
    yield products(world, 4)
    yield products(world, 32)
    yield row_selection(world, 1024)
    yield qsgd(world)
    world.door.bench_threads_resize(1)
