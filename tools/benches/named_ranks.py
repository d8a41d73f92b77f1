"""One rank of `tools/bench named`: named operations against one that carries all of it. Rank 0 prints JSON: microseconds by way and round.
Argument: rounds."""

from __future__ import annotations

import json
import sys
import time

import torch

import penstock.torch as hvd

TENSORS, ELEMENTS = 161, 64


def main() -> None:
    torch.set_num_threads(1)
    hvd.init()
    tensors = [torch.full((ELEMENTS,), float(hvd.rank())) for _ in range(TENSORS)]
    fused = torch.full((TENSORS * ELEMENTS,), float(hvd.rank()))

    def parameters() -> None:
        hvd.broadcast_parameters([(f"of all {i}", tensor) for i, tensor in enumerate(tensors)], 0)

    def one_by_one() -> None:
        handles = [hvd.broadcast_async_(tensor, 0, f"own {i}") for i, tensor in enumerate(tensors)]
        for handle in handles:
            hvd.synchronize(handle)

    ways = {"broadcast_parameters": parameters, "broadcast_async_ of each": one_by_one, "one fused": lambda: hvd.broadcast_(fused, 0, "fused")}
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(int(sys.argv[1]) + 1):
        for name, way in ways.items():
            hvd.barrier()
            start = time.perf_counter()
            way()
            times[name].append(1e6 * (time.perf_counter() - start))
    if any(tensor.any() for tensor in (*tensors, fused)):
        raise SystemExit("a tensor is not rank 0's")
    if hvd.rank() == 0:
        print(json.dumps({name: taken[1:] for name, taken in times.items()}))
    hvd.shutdown()


if __name__ == "__main__":
    main()
