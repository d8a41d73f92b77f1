"""One rank of torch's gloo, started by mpirun with MASTER_ADDR and MASTER_PORT: sums of 8 bytes. Rank 0 prints JSON: microseconds
a message, by round. Argument: rounds."""

from __future__ import annotations

import json
import os
import sys
import time

import torch
import torch.distributed as dist

REPEATS = 500


def main() -> None:
    rank, size = int(os.environ["OMPI_COMM_WORLD_RANK"]), int(os.environ["OMPI_COMM_WORLD_SIZE"])
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=size)
    data = torch.ones(2)
    dist.all_reduce(data)
    if data.tolist() != [size, size]:
        raise SystemExit(f"gloo sums wrong: {data.tolist()}")
    times = []
    for _ in range(int(sys.argv[1]) + 1):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(REPEATS):
            dist.all_reduce(data)
        times.append((time.perf_counter() - start) / REPEATS * 1e6)
    if rank == 0:
        print(json.dumps(times[1:]))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
