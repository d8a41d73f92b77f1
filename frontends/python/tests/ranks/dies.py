"""One rank ends in an exception while the others wait for it: they get an error, and nobody
hangs."""

from __future__ import annotations

import sys

import torch

import penstock.torch as hvd

hvd.init()
hvd.allreduce(torch.ones(3))
if hvd.rank() == hvd.size() - 1:
    raise KeyError("the reason it died of")
try:
    hvd.allreduce(torch.ones(3), name="never")
except hvd.HorovodInternalError as error:
    print(f"survivor {hvd.rank()}: {error}", flush=True)
    sys.exit(3)
