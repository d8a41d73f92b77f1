"""A job that sums once, and then makes a file or waits until the file exists."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import torch

import penstock.torch as hvd

WHAT, FILE = sys.argv[1], Path(sys.argv[2])

hvd.init()
total = hvd.allreduce(torch.full((4,), hvd.rank() + 1.0), op=hvd.Sum)
assert total.tolist() == [3.0] * 4, total
assert "PENSTOCK_PORT" not in os.environ
if hvd.rank() == 0:
    print("summed", flush=True)
    if WHAT == "makes":
        FILE.touch()
while not FILE.exists():
    time.sleep(0.05)
hvd.allreduce(total)
hvd.shutdown()
