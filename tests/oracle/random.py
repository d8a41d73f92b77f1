"""The counter-based generator that the low-rank plugins share with this oracle.

All arithmetic is modulo 2**64. One round of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014) is

    splitmix64(z):  z += 0x9E3779B97F4A7C15
                    z  = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9
                    z  = (z ^ (z >> 27)) * 0x94D049BB133111EB
                    return z ^ (z >> 31)

Element i of a stream that belongs to a gradient is

    base = splitmix64(seed ^ splitmix64(gradient * 0x9E3779B97F4A7C15 + stream))
    bits = splitmix64(base + i * 0x9E3779B97F4A7C15)
    u1, u2 = (upper 32 bits + 0.5) / 2**32, (lower 32 bits + 0.5) / 2**32
    x    = sqrt(-2 ln u1) * cos(2 pi u2)          in double, then rounded to float32

Streams: 1 for the right factor Q, 2 for the left factor P, 3 for the sampling of DGC.
"""

from __future__ import annotations

import numpy as np
import torch

GOLDEN = 0x9E3779B97F4A7C15
MASK = (1 << 64) - 1

STREAM_Q = 1
STREAM_P = 2


def splitmix64(z: int) -> int:
    """One round on a Python integer, modulo 2**64."""
    z = (z + GOLDEN) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def _splitmix64_array(z: np.ndarray) -> np.ndarray:
    """The same round on an array of uint64."""
    with np.errstate(over="ignore"):
        z = z + np.uint64(GOLDEN)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def stream_base(seed: int, gradient: int, stream: int) -> int:
    """The first counter of (seed, gradient, stream)."""
    return splitmix64((seed ^ splitmix64((gradient * GOLDEN + stream) & MASK)) & MASK)


def normals(seed: int, gradient: int, stream: int, rows: int, cols: int) -> torch.Tensor:
    """float32[rows, cols] of standard normals; element i is the i-th in row-major order."""
    counter = np.arange(rows * cols, dtype=np.uint64)
    with np.errstate(over="ignore"):
        z = np.uint64(stream_base(seed, gradient, stream)) + counter * np.uint64(GOLDEN)
    bits = _splitmix64_array(z)
    first = ((bits >> np.uint64(32)).astype(np.float64) + 0.5) / 2.0**32
    second = ((bits & np.uint64(0xFFFFFFFF)).astype(np.float64) + 0.5) / 2.0**32
    values = np.sqrt(-2.0 * np.log(first)) * np.cos(2.0 * np.pi * second)
    return torch.from_numpy(values.astype(np.float32)).reshape(rows, cols)
