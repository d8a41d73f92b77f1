"""torch's DistributedDataParallel over NCCL, and the same with ddp_hook and scheme none: a device for each rank, in turns."""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

OVER_NCCL = '[transport]\ndevice = "nccl"\n'  # of the run
SCHEME = '[scheme]\ncompressor = "none"\nmemory = "none"\nscheduler = "wfbp"\n'  # the buckets are DDP's
WARM_UP = 3  # DDP makes its buckets anew after the first


def why_not(device: str) -> str:
    """Why it is not run; empty where it is."""
    import penstock.torch as hvd
    import torch
    import torch.distributed as dist

    if device != "cuda":
        return "nothing was on a device"
    if torch.cuda.device_count() < 2:
        return f"it needs a device for each of two ranks, and there is {torch.cuda.device_count()}"
    if not dist.is_available() or not dist.is_nccl_available():
        return f"torch {torch.__version__} was built without NCCL"
    if not 2 <= hvd.local_size() <= torch.cuda.device_count():
        return f"it needs a device for each rank, and two ranks or more; ranks: {hvd.local_size()}, devices: {torch.cuda.device_count()}"
    return ""


def measure(options: argparse.Namespace, device: Any, backend: str) -> dict[str, Any]:
    """By round: what a step of the first model takes with plain DDP over `backend`, over what it takes with the hook."""
    import penstock.torch as hvd
    import torch
    import torch.distributed as dist
    from penstock.torch import PenstockState, ddp_hook
    from torch.nn.parallel import DistributedDataParallel

    from benches.cuda.stand_in import Backward, Layers, Products, wait
    from benches.step import models

    if device.type == "cuda":
        torch.cuda.set_device(device)
    own_group = not dist.is_initialized()
    if own_group:
        folder = hvd.broadcast_object(tempfile.mkdtemp(prefix="penstock-") if hvd.rank() == 0 else "", 0)
        dist.init_process_group("gloo", init_method=f"file://{folder}/gloo", rank=hvd.rank(), world_size=hvd.size())
    group = dist.new_group(backend=backend)
    backward = Backward(models.read(options.models[0], options.profiles), Products(device), options.backward_ms, device, hvd.rank())
    plain = DistributedDataParallel(Layers(backward), process_group=group, init_sync=False)
    state = PenstockState(SCHEME)
    hooked = DistributedDataParallel(Layers(backward), init_sync=False)
    hooked.register_comm_hook(state, ddp_hook)

    def step_ms(model: Any, end: Callable[[], None]) -> float:
        backward.begin()
        model.zero_grad(set_to_none=True)
        wait(device)
        hvd.barrier()
        start = time.perf_counter()
        model().backward()
        wait(device)
        taken = 1e3 * (time.perf_counter() - start)
        end()
        return max(hvd.allgather_object(taken))

    found: dict[str, list[float]] = {"plain": [], "hook": []}
    for number in range(WARM_UP + options.rounds):
        for name, model, end in (("plain", plain, lambda: None), ("hook", hooked, state.step_end)):
            taken = step_ms(model, end)
            if number >= WARM_UP:
                found[name].append(taken)
    state.close()
    ratios = [one / other for one, other in zip(found["plain"], found["hook"], strict=True)]
    dist.destroy_process_group(group)
    if own_group:
        dist.destroy_process_group()
    return {
        "plain_ms": statistics.median(found["plain"]), "hook_ms": statistics.median(found["hook"]),
        "plain_over_hook": [statistics.median(ratios), min(ratios), max(ratios)],
    }  # fmt: skip
