"""A script as Horovod's users write them, with loss scaling, clipping, a checkpoint of rank 0 and
imports from Horovod's corners. It knows nothing of penstock."""

import os
import sys

import torch

from horovod import torch as hvd
from horovod.common.exceptions import HorovodInternalError
from horovod.common.util import gloo_built, mpi_built
from horovod.torch.compression import Compression
from horovod.torch.mpi_ops import Average, allgather, synchronize

STEPS = 6


def main(folder):
    hvd.init()
    assert mpi_built() and not gloo_built() and issubclass(HorovodInternalError, RuntimeError)
    torch.manual_seed(hvd.rank())
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    checkpoint = os.path.join(folder, "checkpoint.pt")
    first = 0
    if hvd.rank() == 0 and os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    first = hvd.broadcast_object(first, root_rank=0, name="first")
    optimizer = hvd.DistributedOptimizer(
        optimizer,
        named_parameters=model.named_parameters(),
        compression=Compression.none,
        op=Average,
    )
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0)
    for step in range(first, first + STEPS):
        generator = torch.Generator().manual_seed(100 * step + hvd.rank())
        x = torch.randn(8, 6, generator=generator)
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = (model(x) - x.sum(dim=1, keepdim=True)).float().square().mean()
        scaler.scale(loss).backward()
        optimizer.synchronize()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        with optimizer.skip_synchronize():
            scaler.step(optimizer)
        scaler.update()
    handle = hvd.allreduce_async_(loss.detach(), name="loss")
    mean = synchronize(handle).item()
    if hvd.rank() == 0:
        state = {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "step": first + STEPS,
        }
        torch.save(state, checkpoint)
        print("loss", mean)
    weights = torch.cat([p.detach().reshape(-1) for p in model.parameters()]).reshape(1, -1)
    everywhere = allgather(weights)
    assert all(torch.equal(row, everywhere[0]) for row in everywhere)
    print(f"rank {hvd.rank()} done at step {first + STEPS}")
    hvd.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
