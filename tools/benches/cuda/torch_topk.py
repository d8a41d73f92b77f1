"""Exact top-k on a GPU against torch.topk: python3 tools/benches/cuda/torch_topk.py DOOR.so [--json] [--rounds R]

DOOR.so is kernels_cuda_door.so as tools/gpu-check builds it. Needs torch with CUDA and nothing else; without it, says
"skipped" and why. Results are compared as sets of magnitudes first, then times in interleaved rounds, by events.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import sys
from collections.abc import Callable
from typing import Any

SIZES = (1 << 20, 1 << 24, 100_000_000)
DENSITIES = (0.001, 0.01)


def load(path: str) -> ctypes.CDLL:
    door = ctypes.CDLL(path)
    door.penstock_cuda_select_bytes.restype = ctypes.c_uint64
    door.penstock_cuda_select_bytes.argtypes = [ctypes.c_uint64, ctypes.c_uint64]
    door.penstock_cuda_select_largest.restype = ctypes.c_int32
    pointer = ctypes.c_void_p
    door.penstock_cuda_select_largest.argtypes = [
        pointer, ctypes.c_uint64, ctypes.c_uint64, pointer, pointer, pointer, ctypes.c_uint64, pointer
    ]
    return door


def compare(torch: Any, door: ctypes.CDLL, numel: int, density: float, rounds: int) -> dict[str, Any]:
    k = int(numel * density)
    torch.manual_seed(1)
    x = torch.randn(numel, device="cuda") * torch.exp(torch.randn(numel, device="cuda"))
    indices = torch.empty(k, dtype=torch.int32, device="cuda")
    values = torch.empty(k, device="cuda")
    size = door.penstock_cuda_select_bytes(numel, k)
    workspace = torch.empty(size, dtype=torch.uint8, device="cuda")

    def ours() -> None:
        error = door.penstock_cuda_select_largest(
            x.data_ptr(), numel, k, indices.data_ptr(), values.data_ptr(), workspace.data_ptr(), size,
            torch.cuda.current_stream().cuda_stream,
        )
        if error != 0:
            raise SystemExit(f"torch_topk: CUDA error {error}")

    def theirs() -> None:  # and what a sender needs: the values themselves, in order of their indices
        chosen = torch.topk(x.abs(), k, sorted=False).indices.sort().values
        theirs.values = x[chosen]

    ours()
    theirs()
    torch.cuda.synchronize()
    assert torch.equal(values, x[indices.long()]), "values do not belong to the indices"
    assert bool((indices[1:] > indices[:-1]).all()), "indices do not ascend"
    assert torch.equal(values.abs().sort().values, theirs.values.abs().sort().values), "not the k largest"

    def time(function: Callable[[], None]) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        function()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end)

    target = torch.empty_like(x)
    functions = {"ours": ours, "torch": theirs, "copy": lambda: target.copy_(x)}
    times: dict[str, list[float]] = {name: [] for name in functions}
    for round_ in range(rounds + 1):
        for name, function in functions.items():
            elapsed = time(function)
            if round_ > 0:  # the first warms up
                times[name].append(elapsed)
    ratios = [theirs_ / ours_ for theirs_, ours_ in zip(times["torch"], times["ours"], strict=True)]
    return {
        "numel": numel,
        "density": density,
        "ms": {name: statistics.median(of) for name, of in times.items()},
        "torch_over_ours": [statistics.median(ratios), min(ratios), max(ratios)],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("door")
    parser.add_argument("--json", action="store_true", help="one line for programs")
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    try:
        import torch

        reason = "" if torch.cuda.is_available() else "torch sees no CUDA device"
    except ImportError as error:
        reason = f"torch cannot be imported: {error}"
    if reason:
        print(json.dumps({"skipped": reason}) if options.json else f"skipped: {reason}")
        return 0
    door = load(options.door)
    rows = [compare(torch, door, numel, density, options.rounds) for numel in SIZES for density in DENSITIES]
    if options.json:
        print(json.dumps({"rows": rows}))
        return 0
    for row in rows:
        median, least, most = row["torch_over_ours"]
        print(f"{row['numel']:>11} entries, {row['density']:.1%}: ours {row['ms']['ours']:.3f} ms, torch.topk {row['ms']['torch']:.3f} ms, "
              f"torch over ours {median:.2f} ({least:.2f} to {most:.2f}), copy {row['ms']['copy']:.3f} ms")
    return 0


if __name__ == "__main__":
    sys.exit(main())
