"""Power-SGD's step on one matrix with its residual, and the orthogonalisation of a factor, against torch."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator

import numpy as np
import torch

from benches.kernels.rows import Goal, Row, World, aligned, pointer

count = ctypes.c_uint64


def scratch_of(world: World, rows: int, cols: int, rank: int) -> np.ndarray:
    world.door.bench_low_rank_scratch.restype = count
    return aligned(world.door.bench_low_rank_scratch(count(rows), count(cols), count(rank)), np.float32)


def power_sgd(world: World, rank: int) -> Row:
    side = math.isqrt(world.n)
    elements = side * side
    grad, work = world.heavy_tailed(1, elements), world.heavy_tailed(2, elements)
    out, p, q = np.zeros(elements, np.float32), np.zeros((side, rank), np.float32), world.heavy_tailed(3, side * rank)
    scratch = scratch_of(world, side, side, rank)

    def ours() -> None:
        world.door.bench_power_sgd(pointer(grad), pointer(work), pointer(out), pointer(p), pointer(q), count(side), count(side), count(rank), pointer(scratch))

    def check() -> None:
        whole = (work + grad).reshape(side, side).astype(np.float64)
        left, _ = np.linalg.qr(whole @ q.reshape(side, rank).astype(np.float64))
        expected = left @ (whole.T @ left).T
        ours()
        scale = np.abs(expected).max()
        assert np.abs(out.reshape(side, side) - expected).max() <= 1e-4 * scale
        assert np.abs(work.reshape(side, side) - (whole - expected)).max() <= 1e-4 * scale

    t_grad, t_work = torch.from_numpy(grad).view(side, side), torch.from_numpy(work.copy()).view(side, side)
    state = {"q": torch.from_numpy(q.copy()).view(side, rank)}

    def theirs() -> torch.Tensor:
        t_work.add_(t_grad)
        left = torch.linalg.qr(t_work @ state["q"]).Q
        right = t_work.t() @ left
        approximation = left @ right.t()
        t_work.sub_(approximation)
        state["q"] = torch.linalg.qr(right).Q
        return approximation

    return Row(f"Power-SGD of rank {rank} on {side} x {side} with residual", {"ours": ours, "torch": theirs}, check,
               [Goal("ours", "update", "<=", 3.1), Goal("torch", "ours", ">=", 5.0)], ("update", 28 / 12))


def orthogonalisation(world: World, rows: int, rank: int) -> Row:
    source = world.heavy_tailed(1, rows * rank)
    p, scratch = source.copy(), scratch_of(world, rows, rank, rank)
    tensor = torch.from_numpy(source).view(rows, rank)

    arguments = pointer(p), count(rows), count(rank), pointer(scratch)

    # From the second call on of columns that are orthonormal already, which takes neither more nor less.
    def ours() -> None:
        world.door.bench_orthogonalise(*arguments)

    def check() -> None:
        ours()
        columns = p.reshape(rows, rank).astype(np.float64)
        assert np.abs(columns.T @ columns - np.eye(rank)).max() <= 1e-5
        whole = source.reshape(rows, rank).astype(np.float64)
        assert np.abs(columns @ (columns.T @ whole) - whole).max() <= 1e-4 * np.abs(whole).max()

    return Row(f"orthogonalisation, {rows} x {rank}", {"ours": ours, "torch.linalg.qr": lambda: torch.linalg.qr(tensor)}, check,
               [Goal("ours", "torch.linalg.qr", "<=", 0.4)], None, repeats=20)


def rows(world: World) -> Iterator[Row]:
    yield power_sgd(world, 4)
    yield orthogonalisation(world, 4096, 32)
    yield orthogonalisation(world, 4096, 4)
