"""Broadcast: every rank receives the tensor of one rank."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from penstock import _library as c
from penstock.common.process_sets import ProcessSet, global_process_set, members_of
from penstock.torch import handles, world
from penstock.torch.collectives.allreduce import allreduce
from penstock.torch.collectives.in_place import replacing
from penstock.torch.collectives.reductions import Average
from penstock.torch.handles import Ranks, synchronize
from penstock.torch.tensors import MOVABLE, check_tensor


def _check_root(root_rank: int, ranks: Ranks) -> None:
    if not 0 <= root_rank < world.size():
        raise ValueError(f"root_rank is {root_rank}, expected a rank below {world.size()}")
    if ranks and root_rank not in ranks:
        raise ValueError(
            f"root_rank is {root_rank}, expected a world rank of the process set {list(ranks)}"
        )


def _start(
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    root_rank: int,
    name: str | None,
    process_set: ProcessSet | None,
) -> int:
    check_tensor(tensor, MOVABLE)
    ranks = members_of(process_set)
    _check_root(root_rank, ranks)
    request = replacing(c.BROADCAST, tensor, target, {"root": root_rank})
    return handles.start("broadcast", name, request, ranks)


def broadcast_named_(
    tensors: Sequence[torch.Tensor],
    names: Sequence[str],
    root_rank: int,
    process_set: ProcessSet = global_process_set,
) -> None:
    """Copies the tensors of `root_rank` to every rank, in place. Tensors are matched by name."""
    ranks = members_of(process_set)
    _check_root(root_rank, ranks)
    for tensor in tensors:
        check_tensor(tensor, MOVABLE)
    fields = {"root": root_rank}
    requests = [replacing(c.BROADCAST, tensor, tensor, fields) for tensor in tensors]
    if requests:
        synchronize(handles.start_named("broadcast", names, requests, ranks))


def broadcast_async(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a broadcast of the tensor of `root_rank` into a new tensor on every rank. Returns a
    handle.

    root_rank: a rank of the world, even with a process set.
    """
    return _start(tensor, None, root_rank, name, process_set)


def broadcast_async_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Like broadcast_async, but in place."""
    return _start(tensor, tensor, root_rank, name, process_set)


class _Broadcast(torch.autograd.Function):
    """Broadcast for autograd. The gradient is averaged over ranks and goes to the root alone."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):  # type: ignore[no-untyped-def]
        ctx.root_rank = root_rank
        ctx.process_set = process_set
        return synchronize(_start(tensor, None, root_rank, name, process_set))

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        averaged = allreduce(
            grad_output.contiguous(), op=Average, process_set=ctx.process_set
        )
        if world.rank() != ctx.root_rank:
            averaged = torch.zeros_like(averaged)
        return averaged, None, None, None


def broadcast(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the tensor of `root_rank` on every rank. Differentiable."""
    return _Broadcast.apply(tensor, root_rank, name, process_set)


def broadcast_(
    tensor: torch.Tensor,
    root_rank: int,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like broadcast, but in place and not differentiable."""
    return synchronize(_start(tensor, tensor, root_rank, name, process_set))
