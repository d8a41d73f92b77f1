"""Trains a small network on a CUDA device and on the CPU, through DistributedOptimizer and through
the hook of DistributedDataParallel: the losses must be equal, except for the order of sums.

    mpirun -np 2 python train_on_device.py [--steps 40] [--device cuda]

Prints a line for each way and scheme, and ends with 1 if a curve on the device differs from the
curve of the CPU. If there is no device, or the runtime does not take gradients there, it says
"skipped" and why.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
import warnings
from typing import Any, Callable

SCHEMES = {
    "dense": '[scheme]\nscheduler = "fusion"\n',
    "topk": (
        '[scheme]\ncompressor = "topk"\nmemory = "residual"\nscheduler = "wfbp"\n'
        "[compressor.topk]\ndensity = 0.1\n"
    ),
    "powersgd": '[scheme]\ncompressor = "powersgd"\nmemory = "residual"\nscheduler = "wfbp"\n',
}
# Sums of float32 in another order differ by some 1e-7. After 40 steps of a network this smooth,
# losses differ by far less than this, even if a selection takes the other of two nearly equal
# elements.
TOLERANCE = 0.02
ROWS = 64  # of each rank in each step


def why_not(device: str) -> str:
    """The reason why nothing can run, or an empty text."""
    try:
        import torch
    except ImportError as error:
        return f"{sys.executable} does not import torch: {error}"
    if device == "cpu":
        return ""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device"
    from penstock.common.devices import why_not_in_place

    return why_not_in_place(0)


def is_first_rank() -> bool:
    """Whether this is the first rank of mpirun or torchrun; works before the rendezvous."""
    return (os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ.get("RANK", "0")) == "0"


def make_model() -> Any:
    import torch

    torch.manual_seed(7)
    return torch.nn.Sequential(
        torch.nn.Linear(32, 128), torch.nn.Tanh(), torch.nn.Linear(128, 64), torch.nn.Tanh(),
        torch.nn.Linear(64, 10),
    )  # fmt: skip


def batch(step: int, rank: int) -> tuple[Any, Any]:
    """Points of ten clouds, and the number of the cloud of each point."""
    import torch

    clouds = torch.randn(10, 32, generator=torch.Generator().manual_seed(1))
    generator = torch.Generator().manual_seed(1000 * step + rank)
    labels = torch.randint(10, (ROWS,), generator=generator)
    return clouds[labels] + torch.randn(ROWS, 32, generator=generator), labels


def with_optimizer(model: Any, scheme: str) -> tuple[Any, Any, Callable[[], None]]:
    """The model to call, its optimizer, and a function that ends the exchange."""
    import torch

    import penstock.torch as hvd

    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer: Any = hvd.DistributedOptimizer(sgd, model.named_parameters(), scheme=scheme)
    return model, optimizer, optimizer.close


def with_hook(model: Any, scheme: str) -> tuple[Any, Any, Callable[[], None]]:
    import torch
    from torch.nn.parallel import DistributedDataParallel

    from penstock.torch import PenstockState, ddp_hook

    state = PenstockState(scheme)
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, ddp_hook)
    return ddp, torch.optim.SGD(model.parameters(), lr=0.1), state.close


def take_step(
    called: Any,
    optimizer: Any,
    device: Any,
    step: int,
    backward: Callable[[Any], None] = lambda loss: loss.backward(),
) -> Any:
    """One step on this rank's batch. Returns the loss, without a wait for the device."""
    import torch

    import penstock.torch as hvd

    inputs, labels = (part.to(device) for part in batch(step, hvd.rank()))
    optimizer.zero_grad()
    loss = torch.nn.functional.cross_entropy(called(inputs), labels)
    backward(loss)
    optimizer.step()
    return loss.detach()


def curve(
    wrap: Callable[..., Any], scheme: str, device: Any, steps: int
) -> tuple[list[float], float]:
    """The mean loss of all ranks in every step, and the milliseconds per step."""
    import torch

    import penstock.torch as hvd

    model = make_model().to(device)
    called, optimizer, close = wrap(model, scheme)
    losses, start = [], 0.0
    for step in range(steps):
        if step == 2:  # the first steps make plans and buckets
            start = time.monotonic()
        losses.append(take_step(called, optimizer, device, step))
    own = torch.stack(losses).cpu()  # the only wait for the device
    milliseconds = 1e3 * (time.monotonic() - start) / max(1, steps - 2)
    close()
    return hvd.allreduce(own).tolist(), milliseconds


def train(device: Any, steps: int) -> bool:
    """Trains with every frontend and scheme. True if all curves agree."""
    import torch

    import penstock.torch as hvd

    agree = True
    for way, wrap in {"DistributedOptimizer": with_optimizer, "ddp_hook": with_hook}.items():
        for name, scheme in SCHEMES.items():
            expected, on_cpu = curve(wrap, scheme, torch.device("cpu"), steps)
            found, on_device = curve(wrap, scheme, device, steps)
            apart = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
            learns = found[-1] < 0.9 * found[0]
            agree &= apart <= TOLERANCE and learns
            if hvd.rank() == 0:
                print(
                    f"{way}, {name}: loss {found[0]:.4f} to {found[-1]:.4f} on {device}, "
                    f"{expected[-1]:.4f} on the CPU, at most {apart:.2%} apart; "
                    f"{on_device:.2f} ms a step, {on_cpu:.2f} on the CPU"
                    + ("" if apart <= TOLERANCE else f"; expected at most {TOLERANCE:.0%}")
                    + ("" if learns else "; it does not learn"),
                    flush=True,
                )
    return agree


def with_group(function: Callable[[], bool]) -> bool:
    """Calls `function` while torch has a process group of these ranks, and returns its result."""
    import torch.distributed as dist

    import penstock.torch as hvd

    with tempfile.TemporaryDirectory() as folder:
        folder = hvd.broadcast_object(folder, 0)
        dist.init_process_group(
            "gloo", init_method=f"file://{folder}/gloo", rank=hvd.rank(), world_size=hvd.size()
        )
        result = function()
        hvd.barrier()
    dist.destroy_process_group()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    options = parser.parse_args()
    reason = why_not(options.device)
    if reason:
        if is_first_rank():
            print(f"skipped: {reason}")
        return 0
    import torch
    import torch.distributed as dist

    import penstock.torch as hvd

    hvd.init()
    warnings.simplefilter("error")  # a copy through host memory gives a warning
    device = torch.device("cpu")
    if options.device == "cuda":
        device = torch.device("cuda", hvd.local_rank() % torch.cuda.device_count())
        torch.cuda.set_device(device)
    if dist.is_initialized():  # over_gloo.py has made and borrowed it
        agree = train(device, options.steps)
    else:
        agree = with_group(lambda: train(device, options.steps))
    hvd.shutdown()
    return 0 if agree else 1


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main())
