"""Rank 1's script ends in an exception while the other ranks wait for it. The argument names a file
that rank 0 makes after its message. Rank 1 then ends, because torchrun ends rank 0 at that time."""

import atexit
import os
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import torch

said = Path(sys.argv[1])


def wait_for_rank_0() -> None:
    end = time.monotonic() + 60
    while not said.exists() and time.monotonic() < end:
        time.sleep(0.01)


def stay(_: float) -> None:
    said.touch()
    time.sleep(60)  # until torchrun ends this rank


if os.environ["RANK"] == "1":
    atexit.register(wait_for_rank_0)  # registered first, so it runs after the end of the runtime

import penstock.torch as hvd  # noqa: E402
from penstock.common import uncaught  # noqa: E402

uncaught.time = SimpleNamespace(sleep=stay)
hvd.init()
hvd.allreduce(torch.ones(3))
if hvd.rank() == 1:
    raise KeyError("no such column")
hvd.allreduce(torch.ones(3))
