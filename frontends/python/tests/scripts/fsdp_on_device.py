"""FSDP2 on a device: a sharded model takes steps, and Penstock's reduce-scatter gives the results
of the CPU on the device.

    python -m torch.distributed.run --nproc-per-node 2 over_gloo.py fsdp_on_device.py [--device cuda]

NCCL needs a device for each rank, so each rank shards a model over itself alone, and torch
reduces nothing. The script itself calls the object that FSDP2 would call, on the buffers of all
ranks.
"""

from __future__ import annotations

from typing import Any

from one_device import Skipped, main_of, say
from train_on_device import TOLERANCE, make_model, take_step

SCHEMES = {
    "dense": None,
    "topk": '[scheme]\ncompressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.1\n',
    "signsgd": '[scheme]\ncompressor = "signsgd"\nmemory = "none"\n',
}
STEPS = 20
ROWS = 100_003  # of each rank's part


def curve(model: Any, device: Any) -> list[float]:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return [take_step(model, optimizer, device, step).item() for step in range(STEPS)]


def mesh_of_this_rank(device: Any) -> Any:
    import torch.distributed as dist
    from torch.distributed.device_mesh import DeviceMesh

    import penstock.torch as hvd

    backend = "nccl" if device.type == "cuda" else "gloo"
    groups = [dist.new_group([rank], backend=backend) for rank in range(hvd.size())]
    return DeviceMesh.from_group(groups[hvd.rank()], device.type)


def models_train(device: Any) -> bool:
    from torch.distributed.fsdp import fully_shard

    from penstock.torch.fsdp import reduce_through_penstock

    mesh = mesh_of_this_rank(device)
    plain = curve(make_model().to(device), device)
    model = make_model().to(device)
    for layer in model:
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    reduce_through_penstock(model)
    found = curve(model, device)
    apart = max(abs(a - b) / abs(b) for a, b in zip(found, plain))
    say(f"a sharded model: loss {found[0]:.4f} to {found[-1]:.4f}, {apart:.2%} from the plain one")
    return apart <= TOLERANCE


def reduced(scheme: str | None, device: Any) -> list[Any]:
    """This rank's part of three reductions, as FSDP2 asks for them."""
    import torch
    import torch.distributed as dist

    import penstock.torch as hvd
    from penstock.torch.fsdp import PenstockReduceScatter

    exchange = PenstockReduceScatter(scheme)
    generator = torch.Generator().manual_seed(hvd.rank())
    found = []
    for _ in range(3):
        flat = torch.randn(ROWS * hvd.size(), generator=generator).to(device)
        part = torch.empty(ROWS, device=device)
        exchange(part, flat, dist.group.WORLD, dist.ReduceOp.AVG)
        found.append(part.cpu())
    return found


def reductions_agree(device: Any) -> bool:
    import torch

    import penstock.torch as hvd

    right = True
    for name, scheme in SCHEMES.items():
        here, there = reduced(scheme, device), reduced(scheme, torch.device("cpu"))
        wrong = [n for n, (a, b) in enumerate(zip(here, there)) if not torch.equal(a, b)]
        all_right = not any(hvd.allgather_object(wrong))
        say(f"reduce-scatter, {name}: {'as on the CPU' if all_right else f'WRONG in {wrong}'}")
        right &= all_right
    return right


def attempt(device: Any) -> bool:
    import torch.distributed as dist

    import penstock.torch as hvd

    try:
        import penstock.torch.fsdp  # noqa: F401
    except ImportError as error:
        raise Skipped(f"this torch has no FSDP2: {error}") from error
    if not dist.is_initialized():
        raise Skipped("torch.distributed has no group: start it by over_gloo.py")
    right = reductions_agree(device)
    if device.type == "cuda" and not dist.is_nccl_available():
        say("a sharded model: left out, for this torch has no NCCL, over which FSDP2 gathers")
        return right
    return all(hvd.allgather_object(models_train(device))) and right


if __name__ == "__main__":
    main_of(__doc__, attempt)
