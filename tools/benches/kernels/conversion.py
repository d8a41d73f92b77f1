"""float32 to the 16-bit types and back, against a copy and torch's conversion into a kept buffer."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import torch

from benches.kernels.rows import Goal, Row, World, pointer

count = ctypes.c_uint64


def both_ways(world: World, name: str, dtype: torch.dtype) -> Iterator[Row]:
    x = world.heavy_tailed()
    tensor, kept = torch.from_numpy(x), torch.zeros(world.n, dtype=dtype)
    bits, back, theirs = np.zeros(world.n, np.uint16), np.zeros(world.n, np.float32), torch.zeros(world.n)
    narrow, widen = getattr(world.door, f"bench_to_{name}"), getattr(world.door, f"bench_from_{name}")

    def there() -> None:
        narrow(pointer(x), pointer(bits), count(world.n))

    def same() -> None:
        there()
        assert np.array_equal(bits.view(np.int16), tensor.to(dtype).view(torch.int16).numpy())

    def again() -> None:
        widen(pointer(bits), pointer(back), count(world.n))

    def same_again() -> None:
        there()
        again()
        assert np.array_equal(back, tensor.to(dtype).float().numpy())

    goals = [Goal("ours", "memcpy", "<=", 0.85), Goal("torch", "ours")]
    yield Row(f"float32 to {name}", {"ours": there, "torch": lambda: kept.copy_(tensor)}, same, goals, ("memcpy", 6 / 8))
    yield Row(f"{name} to float32", {"ours": again, "torch": lambda: theirs.copy_(kept)}, same_again, goals, ("memcpy", 6 / 8))


def rows(world: World) -> Iterator[Row]:
    yield from both_ways(world, "half", torch.float16)
    yield from both_ways(world, "bfloat16", torch.bfloat16)
