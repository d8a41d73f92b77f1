"""The last rank ends in an exception while other ranks wait for it. These get an error with the
cause, and no rank hangs."""

from __future__ import annotations

import sys

import torch
from support import say, survivors_have_spoken

import penstock.torch as hvd

hvd.init()
last = hvd.size() - 1
try:
    hvd.allreduce(torch.ones(3), name="first")
    if hvd.rank() == last:
        raise KeyError("the reason it died of")
    hvd.allreduce(torch.ones(3), name="never")
except hvd.HorovodInternalError as error:
    # "first" may fail on a survivor, because a rank may die before its neighbours have the sum.
    say(f"survivor {hvd.rank()}: {error}")
    survivors_have_spoken(hvd.rank(), last)
    sys.exit(3)
