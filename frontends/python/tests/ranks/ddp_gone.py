"""Rank 2 is gone in the middle of training: by an error ("dies"), or at peace ("leaves"). The
others' backward must end with an error that names it."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist
from ddp_support import RANK, TOPK, join_torch, sgd, train, wrap
from support import make_model

import penstock.torch as hvd

if __name__ == "__main__":
    join_torch()
    model = make_model()
    ddp, state = wrap(model, TOPK)
    optimizer = sgd(model)
    try:
        # The others may still be in their third step when rank 2 is gone.
        train(ddp, optimizer, 3)
        if RANK != 2:
            train(ddp, optimizer, 3, first=3)
    except RuntimeError as error:
        print(f"survivor {RANK}: {' '.join(str(error).split())}", flush=True)
        if sys.argv[1] == "dies":
            os._exit(0)  # torch's process group would wait for rank 2
        dist.barrier()
        sys.exit()
    if RANK == 2:
        if sys.argv[1] == "dies":
            raise RuntimeError("the reason it died of")
        hvd.shutdown()
        dist.barrier()  # the others have noticed
        sys.exit()
    print(f"rank {RANK} noticed nothing", flush=True)
    os._exit(1)
