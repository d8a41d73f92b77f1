"""Rank 2 leaves in the middle of training, by an error ("dies") or in order ("leaves"). The
backward of other ranks must end with an error that names rank 2."""

from __future__ import annotations

import os
import sys

import torch.distributed as dist
from ddp_support import RANK, TOPK, join_torch, sgd, train, wrap
from support import make_model, say, survivors_have_spoken

import penstock.torch as hvd

if __name__ == "__main__":
    join_torch()
    model = make_model()
    ddp, state = wrap(model, TOPK)
    optimizer = sgd(model)
    train(ddp, optimizer, 3)
    dist.barrier()  # a rank may have its sums earlier than another rank
    if RANK == 2:
        if sys.argv[1] == "dies":
            raise RuntimeError("the reason it died of")
        hvd.shutdown()
        dist.barrier()  # every other rank has noticed
        sys.exit()
    try:
        train(ddp, optimizer, 3, first=3)
    except RuntimeError as error:
        say(f"survivor {RANK}: {' '.join(str(error).split())}")
        if sys.argv[1] == "dies":
            survivors_have_spoken(RANK, 2)
            os._exit(0)  # torch's process group would wait for rank 2
        dist.barrier()
        sys.exit()
    print(f"rank {RANK} noticed nothing", flush=True)
    os._exit(1)
