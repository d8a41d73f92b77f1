"""What a run with LocalSteps prints."""

from __future__ import annotations

import sys

import torch

import penstock.torch as hvd

hvd.init()
model = torch.nn.Linear(100, 8)
hvd.broadcast_parameters(model.state_dict(), root_rank=0)
inner = torch.optim.SGD(model.parameters(), lr=0.1)
optimizer = hvd.LocalSteps(inner, every=4, named_parameters=model.named_parameters())
for step in range(12):
    if step == 3:
        hvd.barrier()
        if hvd.rank() == 0:  # to the stream of rank 0's other lines, because only lines of one stream keep their order
            print("before the first round", file=sys.stderr, flush=True)
        hvd.barrier()
    if step > 5 and hvd.rank() == 1:
        with torch.no_grad():
            model.weight.fill_(float("nan"))
            model.bias.fill_(float("nan"))
    optimizer.step()
hvd.shutdown()
