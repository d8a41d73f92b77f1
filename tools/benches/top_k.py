"""Exact top-k with indices against memcpy, numpy's partition and torch.topk, in one process, in turn.

The result is checked against a full sort before anything is timed. One thread. Prints one JSON line.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch


def heavy_tailed(n: int) -> np.ndarray:
    """Normal times exp(normal), as gradients look."""
    random = np.random.default_rng(1)
    return (random.standard_normal(n, dtype=np.float32) * np.exp(random.standard_normal(n, dtype=np.float32))).astype(np.float32)


def pointer(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path)
    parser.add_argument("--elements", type=int, default=1 << 24)
    parser.add_argument("--density", type=float, default=0.001)
    parser.add_argument("--rounds", type=int, default=9)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    door = ctypes.CDLL(str(arguments.library))
    door.bench_select_scratch.restype = ctypes.c_uint64
    n, k = arguments.elements, max(1, round(arguments.elements * arguments.density))
    x = heavy_tailed(n)
    copy, indices, values = np.zeros_like(x), np.zeros(k, np.uint32), np.zeros(k, np.float32)
    scratch_bytes = door.bench_select_scratch(ctypes.c_uint64(n), ctypes.c_uint64(k))
    raw = np.zeros(scratch_bytes + 64, np.uint8)
    offset = -raw.ctypes.data % 64
    scratch = raw[offset : offset + scratch_bytes]
    tensor = torch.from_numpy(x)

    def ours() -> None:
        door.bench_select(pointer(x), ctypes.c_uint64(n), ctypes.c_uint64(k), pointer(indices), pointer(values),
                          pointer(scratch), ctypes.c_uint64(scratch_bytes))

    contestants: dict[str, Callable[[], object]] = {
        "memcpy": lambda: door.bench_memcpy(pointer(copy), pointer(x), ctypes.c_uint64(4 * n)),
        "ours": ours,
        "numpy_partition": lambda: np.partition(np.abs(x), n - k),
        "torch_topk": lambda: torch.topk(tensor.abs(), k, sorted=False),
    }
    ours()
    magnitude = np.abs(x)
    expected = np.sort(np.lexsort((np.arange(n), -magnitude))[:k])  # greater magnitude, then lower index
    assert np.array_equal(indices, expected) and np.array_equal(values, x[expected]), "the selection is wrong"

    times: dict[str, list[float]] = {name: [] for name in contestants}
    for round_number in range(arguments.rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if round_number > 0:
                times[name].append(time.perf_counter() - start)
    ratio = lambda a, b: [u / v for u, v in zip(times[a], times[b])]  # noqa: E731
    spread = lambda v: [round(statistics.median(v), 4), round(min(v), 4), round(max(v), 4)]  # noqa: E731
    print(json.dumps({
        "elements": n, "k": k, "rounds": arguments.rounds,
        **{f"{name}_ms": spread([1e3 * t for t in series]) for name, series in times.items()},
        "ours_over_memcpy": spread(ratio("ours", "memcpy")),
        "torch_over_ours": spread(ratio("torch_topk", "ours")),
        "numpy_over_ours": spread(ratio("numpy_partition", "ours")),
    }))


if __name__ == "__main__":
    main()
