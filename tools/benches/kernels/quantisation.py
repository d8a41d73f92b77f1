"""Signs, votes and stochastic rounding against a copy, and against the torch expressions of the same."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import torch

from benches.kernels.rows import Goal, Row, World, pointer

count = ctypes.c_uint64
VOTERS = 8


def bits(plane: np.ndarray, n: int) -> np.ndarray:
    return np.unpackbits(plane.view(np.uint8), bitorder="little")[:n].astype(bool)


def signs(world: World) -> Iterator[Row]:
    n, words = world.n, (world.n + 63) // 64
    x, out, plane = world.heavy_tailed(), np.zeros(world.n, np.float32), np.zeros(words, np.uint64)
    planes = np.random.default_rng(1).integers(0, 2**63, VOTERS * words, np.uint64)
    above, below = np.zeros(words, np.uint64), np.zeros(words, np.uint64)

    def pack() -> None:
        world.door.bench_pack_signs(pointer(x), count(n), pointer(plane))

    def packed() -> None:
        pack()
        assert np.array_equal(bits(plane, n), x < 0)

    def unpack() -> None:
        world.door.bench_unpack_signs(pointer(plane), count(n), ctypes.c_float(0.5), pointer(out))

    def unpacked() -> None:
        packed()
        unpack()
        assert np.array_equal(out, np.where(x < 0, -0.5, 0.5))

    def vote() -> None:
        world.door.bench_vote(pointer(planes), count(VOTERS), count(n), pointer(above), pointer(below))

    def voted() -> None:
        vote()
        nays = sum(bits(planes[v * words : (v + 1) * words], n).astype(np.int8) for v in range(VOTERS))
        assert np.array_equal(bits(above, n), 2 * nays < VOTERS) and np.array_equal(bits(below, n), 2 * nays > VOTERS)

    yield Row("signs packed", {"ours": pack}, packed, [Goal("ours", "memcpy", "<=", 0.45)])
    yield Row("signs unpacked with a scale", {"ours": unpack}, unpacked, [Goal("ours", "memcpy", "<=", 0.52)], ("memcpy", 0.5))
    yield Row(f"vote of {VOTERS}", {"ours": vote}, voted, [Goal("ours", "memcpy", "<=", 0.12)], ("read", (VOTERS + 2) / 32))


def ef_sign(world: World) -> Row:
    n = world.n
    grad, work = world.heavy_tailed(), world.heavy_tailed(2)
    plane = np.zeros((n + 63) // 64, np.uint64)
    world.door.bench_ef_sign.restype = ctypes.c_float

    def ours() -> float:
        return world.door.bench_ef_sign(pointer(grad), pointer(work), count(n), pointer(plane))

    def check() -> None:
        whole = work + grad
        scale = np.float32(ours())
        assert np.isclose(scale, np.abs(whole).mean(dtype=np.float64), rtol=1e-6)
        assert np.array_equal(bits(plane, n), whole < 0) and np.array_equal(work, whole - scale * np.sign(whole))

    return Row("EF-sign with residual", {"ours": ours}, check, [Goal("ours", "memcpy", "<=", 1.3)], ("update", 20 / 12))


def rounding(world: World) -> Iterator[Row]:
    n = world.n
    x = world.heavy_tailed()
    top = float(np.abs(x).max())
    codes, steps = np.zeros(n, np.uint8), np.zeros((n + 511) // 512, np.float32)
    negative, nonzero = np.zeros((n + 63) // 64, np.uint64), np.zeros((n + 63) // 64, np.uint64)
    tensor, step = torch.from_numpy(x), np.float32(top / 127)

    def levels() -> None:
        world.door.bench_levels(pointer(x), count(n), ctypes.c_float(step), pointer(codes))

    def near() -> None:
        levels()
        assert float(np.abs(codes.view(np.int8) * step - x).max()) <= 1.001 * step

    def torch_levels() -> torch.Tensor:
        return torch.floor(tensor.abs() / top * 127 + torch.rand_like(tensor)).mul_(tensor.sign()).to(torch.int8)

    def qsgd() -> None:
        world.door.bench_qsgd(pointer(x), count(n), pointer(steps), pointer(codes))

    def near_in_buckets() -> None:
        qsgd()
        of_element = np.repeat(steps, 512)[:n]
        assert bool((np.abs(codes.view(np.int8) * of_element - x) <= 1.001 * of_element).all())

    def ternary() -> None:
        world.door.bench_ternary(pointer(x), count(n), ctypes.c_float(top), pointer(negative), pointer(nonzero))

    def plausible() -> None:
        ternary()
        kept, expected = float(bits(nonzero, n).sum()), float(np.abs(x).sum(dtype=np.float64)) / top
        assert abs(kept - expected) <= 5 * expected**0.5 + 1 and not bool((bits(negative, n) & (x >= 0)).any())

    def torch_ternary() -> torch.Tensor:
        return tensor.sign().mul_(torch.rand_like(tensor) < tensor.abs() / top).to(torch.int8)

    limits = [Goal("ours", "memcpy", "<=", 0.7), Goal("torch", "ours", ">=", 20.0)]
    yield Row("QSGD, 8 bits", {"ours": levels, "torch": torch_levels}, near, limits)
    yield Row("QSGD, 8 bits, with the largest of 512", {"ours": qsgd}, near_in_buckets, [Goal("ours", "memcpy")])
    yield Row("TernGrad", {"ours": ternary, "torch": torch_ternary}, plausible, limits)


def rows(world: World) -> Iterator[Row]:
    yield from signs(world)
    yield ef_sign(world)
    yield from rounding(world)
