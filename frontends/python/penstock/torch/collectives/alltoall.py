"""All-to-all: every rank distributes the rows of its tensor over the ranks."""

from __future__ import annotations

from typing import Any

import torch

from penstock import _library as c
from penstock.common.process_sets import ProcessSet, global_process_set, members_of
from penstock.common.runtime import Operation
from penstock.torch import handles, world
from penstock.torch.collectives.allgather import check_rows, received_rows
from penstock.torch.handles import Request, synchronize
from penstock.torch.tensors import MOVABLE, check_tensor, in_host_memory


def _check_splits(splits: Any, size: int, rows: int) -> torch.Tensor:
    """The splits as an int32 tensor. ValueError for splits that do not fit."""
    if not isinstance(splits, torch.Tensor):
        splits = torch.tensor(splits, dtype=torch.int32, device="cpu")
    if splits.dtype != torch.int32:
        raise ValueError(
            "alltoall expects splits to contain 32-bit integer elements, got "
            f"{splits.dtype}; use splits.to(torch.int32)"
        )
    if splits.dim() != 1 or splits.numel() != size:
        raise ValueError(
            f"alltoall expects one split for each of the {size} ranks in one dimension, got shape "
            f"{tuple(splits.shape)}"
        )
    total = int(splits.sum())
    if bool((splits < 0).any()) or total > rows:
        raise ValueError(
            f"alltoall got the splits {splits.tolist()}, expected none below 0 and a sum of at "
            f"most the first dimension, {rows}"
        )
    return splits


def _start(
    tensor: torch.Tensor, splits: Any, name: str | None, process_set: ProcessSet | None
) -> int:
    """Starts the operation. The handle's result is (received rows, number of rows from each
    rank)."""
    check_tensor(tensor, MOVABLE)
    check_rows("alltoall", tensor)
    ranks = members_of(process_set)
    size = len(ranks) or world.size()
    home = torch.device("cpu")
    shares: list[int] = []
    if splits is not None:
        splits = _check_splits(splits, size, tensor.shape[0])
        home, shares = splits.device, splits.tolist()
    elif tensor.shape[0] % size != 0:
        raise ValueError(
            f"alltoall got {tensor.shape[0]} rows, which {size} ranks cannot share equally; give "
            "splits"
        )
    work = in_host_memory(tensor)
    both = received_rows(tensor)

    def finish(operation: Operation) -> tuple[torch.Tensor, torch.Tensor]:
        received, rows = both(operation)
        return received, torch.tensor(rows, dtype=torch.int32, device=home)

    request = Request(c.ALL_TO_ALL, work, finish, splits=shares)
    return handles.start("alltoall", name, request, ranks)


def alltoall_async(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts alltoall. Returns a handle, whose result is always the pair (received rows, number of
    rows from each rank)."""
    return _start(tensor, splits, name, process_set)


class _Alltoall(torch.autograd.Function):
    """All-to-all for autograd. The rows of the gradient return to the ranks of their input rows."""

    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):  # type: ignore[no-untyped-def]
        received, received_splits = synchronize(_start(tensor, splits, name, process_set))
        ctx.rows = tensor.shape[0]
        ctx.process_set = process_set
        ctx.received_splits = received_splits
        ctx.mark_non_differentiable(received_splits)
        return received, received_splits

    @staticmethod
    def backward(ctx, grad_output, _):  # type: ignore[no-untyped-def]
        grad, _ = _Alltoall.apply(
            grad_output.contiguous(), ctx.received_splits, None, ctx.process_set
        )
        unsent = ctx.rows - grad.shape[0]
        if unsent > 0:
            # Rows beyond the sum of the splits were sent to no rank.
            grad = torch.cat([grad, grad.new_zeros(unsent, *grad.shape[1:])])
        return grad, None, None, None


def alltoall(
    tensor: torch.Tensor,
    splits: Any = None,
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> Any:
    """Sends rows of `tensor` to each rank and returns the received rows, in the order of ranks.
    Differentiable.

    splits: the number of rows for each rank, int32 (a tensor or a list); None: equal parts. With
        splits the result is (received rows, number of rows from each rank); the second tensor is on
        the device of splits.
    """
    received, received_splits = _Alltoall.apply(tensor, splits, name, process_set)
    return received if splits is None else (received, received_splits)
