"""torch's tutorial: ranks of mp.spawn, or forked ranks. Only init_process_group gets the rank and
the size."""

import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd

DENSE = '[scheme]\ncompressor = "none"\nmemory = "none"\n'


def work(rank: int, size: int, store: str, how: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=size)
    if how == "borrowed":
        hvd.lend_process_group()
    if how != "late":
        hvd.init()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(8, 4))
    model.register_comm_hook(hvd.PenstockState(DENSE), hvd.ddp_hook)
    model(torch.full((1, 8), 1.0 + rank)).sum().backward()
    assert torch.allclose(model.module.weight.grad, torch.tensor((1.0 + size) / 2))
    assert (hvd.rank(), hvd.size()) == (rank, size)
    print(f"{how}: rank {rank} of {size} is right", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    method, how = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        mp.start_processes(work, (2, os.path.join(folder, "store"), how), 2, start_method=method)
