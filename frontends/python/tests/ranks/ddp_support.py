"""Functions that the scripts with DistributedDataParallel share. torch's process group is gloo,
over the ranks of the launcher."""

from __future__ import annotations

import os
from typing import Any, Callable

import torch
import torch.distributed as dist
from support import loss_of, make_batch, make_model
from torch.nn.parallel import DistributedDataParallel

from penstock.torch import PenstockState, ddp_hook

RANK = int(os.environ.get("OMPI_COMM_WORLD_RANK") or os.environ["RANK"])
SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["WORLD_SIZE"])
STEPS = 6

DENSE = '[scheme]\nscheduler = "wfbp"\n'
TOPK = """
[scheme]
compressor = "topk"
memory = "residual"
scheduler = "wfbp"
[compressor.topk]
density = 0.1
"""
DGC = """
[scheme]
compressor = "dgc"
memory = "dgc"
scheduler = "wfbp"
[compressor.dgc]
density = 0.1
[memory.dgc]
momentum = 0.9
"""


def join_torch() -> None:
    """Makes torch's process group, once. The launcher gives every launch a TMPDIR of its own."""
    if dist.is_initialized():
        return
    store = f"file://{os.environ['TMPDIR']}/gloo"
    dist.init_process_group("gloo", init_method=store, rank=RANK, world_size=SIZE)


def wrap(model: torch.nn.Module, scheme: Any = DENSE, **options: Any) -> tuple[Any, PenstockState]:
    """The model in DistributedDataParallel, with a hook."""
    ddp = DistributedDataParallel(model, **options)
    state = scheme if isinstance(scheme, PenstockState) else PenstockState(scheme)
    ddp.register_comm_hook(state, ddp_hook)
    return ddp, state


def part(rows: torch.Tensor) -> torch.Tensor:
    """This rank's part of a batch."""
    return rows.chunk(SIZE)[RANK]


def sgd(model: torch.nn.Module, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=momentum)


def train(
    ddp: Any,
    optimizer: torch.optim.Optimizer,
    steps: int = STEPS,
    change: Callable[[], Any] | None = None,
    first: int = 0,
) -> list[float]:
    """A plain loop. change: changes gradients before the step."""
    losses = []
    for step in range(first, first + steps):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * SIZE)
        loss = loss_of(ddp, part(x), part(y))
        loss.backward()
        if change is not None:
            change()
        optimizer.step()
        losses.append(loss.item())
    return losses


def plain_ddp(change: Callable[[torch.nn.Module], Any] | None = None, **options: Any) -> Any:
    """The same training by torch alone."""
    model = make_model()
    ddp = DistributedDataParallel(model, **options)
    train(ddp, sgd(model, momentum=0.9), change=None if change is None else lambda: change(model))
    return model


def same_everywhere(model: torch.nn.Module) -> None:
    """All ranks have equal parameters, to the bit."""
    flat = torch.cat([p.detach().reshape(-1).float() for p in model.parameters()])
    others = [torch.empty_like(flat) for _ in range(SIZE)]
    dist.all_gather(others, flat)
    assert all(torch.equal(flat, other) for other in others), "parameters differ between ranks"


def bits_of(model: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in model.parameters()]


def same_bits(got: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    """Lists of parameters agree to the bit."""
    for number, (a, b) in enumerate(zip(got, expected)):
        assert torch.equal(a, b), f"parameter {number} differs by {(a - b).abs().max()}"


def ends_of(state: PenstockState) -> list[bool]:
    """The outcome of each later step: True if the step counts, False if it was forgotten."""
    ended: list[bool] = []
    gradients: Any = state._exchange.set
    end = gradients.step_end

    def note(outcome: int) -> None:
        before = gradients.counters()["steps"]
        end(outcome)
        ended.append(gradients.counters()["steps"] > before)

    gradients.step_end = note
    return ended
