"""Exact top-k, whole and by rows, top-k and DGC in one sweep with their memories, a known threshold, and statistics."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import torch

from benches.kernels.rows import Goal, Row, World, aligned, pointer

count = ctypes.c_uint64
KEPT = {0.001: (0.60, 70.0), 0.01: (0.75, 100.0)}  # density: at most this over memcpy, torch.topk at least this over ours


def largest(x: np.ndarray, k: int) -> np.ndarray:
    """Indices of the k largest |x|, ascending; between equals the lower."""
    return np.sort(np.lexsort((np.arange(x.size), -np.abs(x)))[:k]).astype(np.uint32)


class Room:
    """Where a selection of k entries writes."""

    def __init__(self, world: World, k: int) -> None:
        world.door.bench_select_scratch.restype = count
        world.door.bench_fold.restype = count
        self.k = k
        self.indices, self.values = np.zeros(k, np.uint32), np.zeros(k, np.float32)
        self.scratch = aligned(world.door.bench_select_scratch(count(world.n), count(k)))

    def arguments(self) -> tuple[ctypes.c_void_p | ctypes.c_uint64, ...]:
        return pointer(self.indices), pointer(self.values), pointer(self.scratch), count(self.scratch.size)


def top_k(world: World, density: float) -> Row:
    n, k = world.n, round(world.n * density)
    x, room = world.heavy_tailed(), Room(world, k)
    tensor = torch.from_numpy(x)

    def ours() -> None:
        world.door.bench_select_largest(pointer(x), count(n), count(k), *room.arguments())

    def check() -> None:
        ours()
        expected = largest(x, k)
        assert np.array_equal(room.indices, expected) and np.array_equal(room.values, x[expected])

    over_memcpy, over_torch = KEPT[density]
    return Row(f"exact top-k with indices, {100 * density:g} %",
               {"ours": ours, "numpy.partition": lambda: np.partition(np.abs(x), n - k), "torch.topk": lambda: torch.topk(tensor.abs(), k, sorted=False)},
               check, [Goal("ours", "memcpy", "<=", over_memcpy), Goal("torch.topk", "ours", ">=", over_torch), Goal("numpy.partition", "ours")])


def by_rows(world: World, width: int, density: float) -> Row:
    """ADTopk's selection: of each row of a matrix as many, at least one."""
    height, k = world.n // width, max(1, int(width * density))
    x = world.heavy_tailed(1, height * width)
    indices, values = np.zeros(height * k, np.uint32), np.zeros(height * k, np.float32)
    world.door.bench_select_rows_scratch.restype = count
    scratch = aligned(world.door.bench_select_rows_scratch(count(width)))
    tensor = torch.from_numpy(x).view(height, width)

    def ours() -> None:
        world.door.bench_select_rows(pointer(x), count(height), count(width), count(k), pointer(indices), pointer(values), pointer(scratch), count(scratch.size))

    def check() -> None:
        ours()
        order = np.argsort(-np.abs(x.reshape(height, width)), axis=1, kind="stable")[:, :k]
        expected = (np.sort(order, axis=1) + width * np.arange(height)[:, None]).astype(np.uint32).ravel()
        assert np.array_equal(indices, expected) and np.array_equal(values, x[expected])

    return Row(f"top-k of each row of {width}, {100 * density:g} %", {"ours": ours, "torch.topk": lambda: torch.topk(tensor.abs(), k, dim=1, sorted=False)},
               check, [Goal("ours", "memcpy", "<=", 0.6), Goal("torch.topk", "ours")])


def folded(world: World, what: str, density: float, momentum: bool, reused: bool, limit: float) -> Row:
    """Compensate, select, take out; with momentum also the masking of u."""
    n, k = world.n, round(world.n * density)
    grad, room = world.heavy_tailed(), Room(world, k)
    work, u = world.heavy_tailed(2), world.heavy_tailed(3) if momentum else None
    threshold = float(np.partition(np.abs(grad), n - k)[n - k]) if reused else -1.0

    def ours() -> int:
        return world.door.bench_fold(pointer(grad), pointer(work), pointer(u) if u is not None else None, ctypes.c_float(0.9), count(n),
                                     ctypes.c_float(threshold), count(k), *room.arguments())

    def check() -> None:
        expected_u = np.float32(0.9) * u + grad if u is not None else None
        expected = work + (grad if expected_u is None else expected_u)
        chosen = np.flatnonzero(np.abs(expected) >= threshold) if reused else largest(expected, k)
        if chosen.size > k:
            chosen = largest(expected, k)
        went = ours()
        assert went == chosen.size and np.array_equal(room.indices[:went], chosen)
        assert np.array_equal(room.values[:went], expected[chosen])
        expected[chosen] = 0
        assert np.array_equal(work, expected)
        if expected_u is not None:
            expected_u[chosen] = 0
            assert np.array_equal(u, expected_u)

    theirs_work, theirs_u, theirs_grad = torch.from_numpy(work.copy()), torch.zeros(n), torch.from_numpy(grad)

    def theirs() -> None:
        if momentum:
            theirs_u.mul_(0.9).add_(theirs_grad)
            theirs_work.add_(theirs_u)
        else:
            theirs_work.add_(theirs_grad)
        chosen = torch.topk(theirs_work.abs(), k, sorted=False).indices if not reused else (theirs_work.abs() >= threshold).nonzero().flatten()[:k]
        theirs_work[chosen]
        theirs_work[chosen] = 0
        if momentum:
            theirs_u[chosen] = 0

    floor = ("update", 5 / 3 if momentum else 1.0)  # grad, work, and u are read, work and u written
    return Row(what, {"ours": ours, "torch": theirs}, check, [Goal("ours", "memcpy", "<=", limit), Goal("torch", "ours")], floor)


def statistics(world: World, logs: bool) -> Row:
    x = world.heavy_tailed()
    thresholds = np.linspace(8, 15, 8, dtype=np.float32)
    counts, sums = np.zeros(8, np.uint64), np.zeros(3)

    def ours() -> None:
        world.door.bench_statistics(pointer(x), count(world.n), pointer(thresholds), count(8), pointer(counts), int(logs), pointer(sums))

    def check() -> None:
        ours()
        magnitude = np.abs(x.astype(np.float64))
        assert np.array_equal(counts, [(np.abs(x) >= t).sum() for t in thresholds])
        assert np.allclose(sums[:2], [magnitude.sum(), (magnitude**2).sum()], rtol=1e-9)
        if logs:  # the logarithms of 2^24 floats, each to 1e-7
            assert abs(sums[2] - np.log(magnitude[magnitude > 0]).sum()) <= 1e-7 * x.size

    tensor = torch.from_numpy(x)

    def theirs() -> None:
        magnitude = tensor.abs()
        magnitude.sum()
        (magnitude * magnitude).sum()
        if logs:
            magnitude.log().sum()
        for threshold in thresholds.tolist():
            (magnitude >= threshold).sum()

    what = "sums of magnitudes and squares, largest, counts of 8 thresholds" + (", sum of logarithms" if logs else "")
    return Row(what, {"ours": ours, "torch": theirs}, check, [Goal("ours", "memcpy"), Goal("torch", "ours")])


def rows(world: World) -> Iterator[Row]:
    for density in KEPT:
        yield top_k(world, density)
    yield folded(world, "residual and exact top-k in one sweep, 0.1 %", 0.001, momentum=False, reused=False, limit=1.0)
    yield folded(world, "residual and exact top-k in one sweep, 1 %", 0.01, momentum=False, reused=False, limit=1.0)
    yield folded(world, "DGC: momentum and exact top-k in one sweep, masked, 0.1 %", 0.001, momentum=True, reused=False, limit=1.8)
    yield folded(world, "residual and all above a known threshold in one sweep, 0.1 %", 0.001, momentum=False, reused=True, limit=1.1)
    for width in (64, 1024):
        yield by_rows(world, width, 0.01)
    yield statistics(world, logs=False)
    yield statistics(world, logs=True)
