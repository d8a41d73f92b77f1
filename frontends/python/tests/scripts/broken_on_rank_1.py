"""Rank 1's script ends in an exception of its own while the others wait for it."""

import torch

import penstock.torch as hvd

hvd.init()
hvd.allreduce(torch.ones(3))
if hvd.rank() == 1:
    raise KeyError("no such column")
hvd.allreduce(torch.ones(3))
