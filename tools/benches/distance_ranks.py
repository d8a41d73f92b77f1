"""One of two ranks of tools/bench distance, started by mpirun with MASTER_ADDR and MASTER_PORT: a broadcast of rank 0's over one
transport. Rank 1 prints JSON: megabits a second that came through, by round. Arguments: transport, bytes, rounds."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

import torch

FORWARDED = {"RANK": "OMPI_COMM_WORLD_RANK", "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE", "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK"}


def over_gloo() -> tuple[Callable[[torch.Tensor, str], None], Callable[[], None]]:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    return lambda data, _: dist.broadcast(data, 0), dist.destroy_process_group


def over_penstock(transport: str) -> tuple[Callable[[torch.Tensor, str], None], Callable[[], None]]:
    import penstock.torch as hvd

    hvd.init(config_text=f'[scheme]\ncollective = "{transport}"\n')
    return lambda data, name: hvd.broadcast_(data, 0, name=name), hvd.shutdown


def main() -> None:
    transport, size, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    rank = int(os.environ["OMPI_COMM_WORLD_RANK"])
    if transport != "mpi":
        os.environ.update({name: os.environ[theirs] for name, theirs in FORWARDED.items()})
    torch.set_num_threads(1)
    broadcast, end = over_gloo() if transport == "gloo" else over_penstock(transport)
    answer, rates = torch.zeros(1), []
    for number in range(rounds):
        data = torch.full((size,), 1 + number if rank == 0 else 0, dtype=torch.uint8)
        start = time.perf_counter()
        broadcast(data, f"data {number}")
        if not bool((data == 1 + number).all()):
            raise SystemExit(f"bench distance: a broadcast over {transport} came with other bytes")
        rates.append(8e-6 * size / (time.perf_counter() - start))
        broadcast(answer, f"answer {number}")
    if rank == 1:  # where the bytes have come
        print(json.dumps(rates))
    end()


if __name__ == "__main__":
    main()
