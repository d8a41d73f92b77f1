"""A training of two steps with README's two lines. The arguments of a test add or leave out
parts."""

import sys

import torch
import torch.distributed as dist

import penstock.torch as hvd

dist.init_process_group("gloo")
if "late" not in sys.argv:
    hvd.init()
scheme = sys.argv[1]
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 8))
if scheme != "none":
    state = hvd.PenstockState(scheme)
    if "forgotten" not in sys.argv:
        model.register_comm_hook(state, hvd.ddp_hook)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
if hvd.is_initialized() and hvd.rank() == 0:
    print("transport", hvd.report()["scheme"]["collective"], "log level", hvd.report()["log_level"])
