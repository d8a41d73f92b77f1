"""Rank 1's script ends in an exception while the other ranks wait for it."""

import torch

import penstock.torch as hvd

hvd.init()
hvd.allreduce(torch.ones(3))
if hvd.rank() == 1:
    raise KeyError("no such column")
hvd.allreduce(torch.ones(3))
