"""One rank of tools/bench ddp, started under torchrun's variables (RANK, WORLD_SIZE, MASTER_*). Rank 0 prints one line of JSON.

links: several DistributedDataParallel objects over the shapes of ResNet-50 take turns, step by step; a figure is the length of
backward on the slowest rank, in milliseconds, by round. Backward computes nothing: it hands out gradients that are there.
calls: one rank, 161 gradients of one element; microseconds per gradient.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import penstock.torch as hvd
import torch
import torch.distributed as dist
from penstock.torch import PenstockState, ddp_hook
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.debugging_hooks import noop_hook
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

RANK = 4  # of both low-rank methods
CONF = Path(__file__).resolve().parents[2] / "conf"
Times = dict[str, list[float]]


class GiveGradients(torch.autograd.Function):
    """A loss whose backward is over at once: each parameter gets a gradient that lies ready."""

    @staticmethod
    def forward(context: Any, gradients: list[torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
        context.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> Any:
        return (None, *context.gradients)


class Model(nn.Module):
    """Parameters of these shapes. `gradients` belongs to all models of a rank."""

    def __init__(self, gradients: list[torch.Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(gradient.shape)) for gradient in gradients)
        self.gradients = gradients

    def forward(self) -> torch.Tensor:
        return GiveGradients.apply(self.gradients, *self.weights)


def resnet50_gradients() -> list[torch.Tensor]:
    """Gradients of ResNet-50's shapes, the same on every rank. Matrices are of the rank that the low-rank methods keep, so that
    these give them back whole."""
    from resnet50_backward import network

    torch.manual_seed(1)
    with torch.device("meta"):
        shapes = [parameter.shape for parameter in network().parameters()]
    return [
        torch.randn(shape) if len(shape) < 2 else (torch.randn(shape[0], RANK) @ torch.randn(RANK, shape[1:].numel())).view(shape)
        for shape in shapes
    ]  # fmt: skip


def contestants(gradients: list[torch.Tensor]) -> dict[str, DistributedDataParallel]:
    """By name, each with what it keeps."""
    models = {}

    def add(name: str, state: Any = None, hook: Callable[..., Any] | None = None, **options: Any) -> None:
        models[name] = DistributedDataParallel(Model(gradients), init_sync=False, **options)
        if hook is not None:
            models[name].register_comm_hook(state, hook)

    add("gloo")
    add("dense", PenstockState('[scheme]\ncompressor = "none"\nmemory = "none"\nscheduler = "fusion"\n'), ddp_hook)
    theirs = PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=2, warm_start=True)
    # Over gloo its second sum of a bucket starts from a thread of its own: with several buckets ranks would disagree on the order.
    add("torch's PowerSGD", theirs, powerSGD_hook, bucket_cap_mb=1024)
    add("power-sgd", PenstockState((CONF / "power-sgd.toml").read_text()), ddp_hook)
    return models


def step(model: DistributedDataParallel) -> float:
    """Seconds of a backward, from the moment at which all ranks are ready."""
    model.zero_grad()
    loss = model()
    dist.barrier()
    start = time.perf_counter()
    loss.backward()
    return time.perf_counter() - start


def check(name: str, model: DistributedDataParallel, expected: list[torch.Tensor]) -> None:
    """SystemExit where a result is not the mean of all ranks."""
    for number, (parameter, mean) in enumerate(zip(model.parameters(), expected)):
        assert parameter.grad is not None
        off = float((parameter.grad - mean).norm() / mean.norm())
        if not off < 1e-3:
            raise SystemExit(f"bench ddp: {name}: gradient {number} of shape {tuple(mean.shape)} is off by {off:.3g} of its norm")


def links(rounds: int, only: list[str]) -> Times:
    """Milliseconds of each contestant's backward on the slowest rank, by round."""
    rank, size = dist.get_rank(), dist.get_world_size()
    gradients = resnet50_gradients()
    mean = [gradient * ((size + 1) / 2) for gradient in gradients]
    for gradient in gradients:
        gradient *= rank + 1
    models = {name: model for name, model in contestants(gradients).items() if not only or name in only}
    for name, model in models.items():
        for _ in range(4):  # torch's PowerSGD is dense in the first two
            step(model)
        check(name, model, mean)
    del mean
    for gradient in gradients:
        gradient.normal_()
    mine: Times = {name: [] for name in models}
    for _ in range(rounds + 1):
        for name, model in models.items():
            mine[name].append(step(model) * 1e3)
    everyone: list[Times] = [{} for _ in range(size)]
    dist.all_gather_object(everyone, mine)
    return {name: [max(times) for times in zip(*(one[name] for one in everyone))][1:] for name in models}


@contextlib.contextmanager
def single_elements(hook: str) -> Iterator[Callable[[], None]]:
    """A step of 161 gradients of one element on this one rank, through `hook`."""
    model: nn.Module = Model([torch.ones(1) for _ in range(161)])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state = None
    if hook == "optimizer":
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    elif hook != "plain":
        model = DistributedDataParallel(model)
        state = PenstockState() if hook == "hook" else None
        model.register_comm_hook(state, ddp_hook if hook == "hook" else noop_hook)

    def run() -> None:
        optimizer.zero_grad()
        model().backward()
        optimizer.step()

    yield run
    if state is not None:
        state.close()


def calls(rounds: int, repeats: int = 50) -> Times:
    """Microseconds per gradient of a step, by round."""
    names = ("plain", "optimizer", "no hook", "hook")
    times: Times = {name: [] for name in names}
    with contextlib.ExitStack() as stack:
        steps = {name: stack.enter_context(single_elements(name)) for name in names}
        for _ in range(rounds + 1):
            for name, run in steps.items():
                run()
                start = time.perf_counter()
                for _ in range(repeats):
                    run()
                times[name].append((time.perf_counter() - start) / repeats / 161 * 1e6)
    return {name: found[1:] for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("links", "calls"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", action="append", default=[])
    options = parser.parse_args()
    torch.set_num_threads(1)
    collective = "ucx" if int(os.environ["WORLD_SIZE"]) > 1 else "loopback"
    hvd.init(config_text=f'[scheme]\ncompressor = "none"\nmemory = "none"\nscheduler = "fusion"\ncollective = "{collective}"\n')
    dist.init_process_group("gloo")
    figures = links(options.rounds, options.only) if options.what == "links" else calls(options.rounds)
    if dist.get_rank() == 0:
        print(json.dumps(figures))
    dist.barrier()
    hvd.shutdown()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
