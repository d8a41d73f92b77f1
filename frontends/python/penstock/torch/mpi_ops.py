"""Collective operations on torch tensors: Horovod's names, arguments and errors.

Ranks match operations by name, not by the order of calls. Asynchronous forms return a handle for
`poll` and `synchronize`; the tensor must stay untouched until then. Out-of-place synchronous forms
are differentiable. Errors: ValueError for what is wrong on this rank, HorovodInternalError on every
rank where ranks disagree.
"""

from __future__ import annotations

import ctypes
import warnings
from typing import Any

import torch

from penstock import _library as c
from penstock.common.runtime import Operation
from penstock.torch import handles
from penstock.torch.compression import Compression
from penstock.torch.handles import poll, synchronize
from penstock.torch.tensors import MOVABLE, REDUCIBLE, check_tensor, host_copy, usable
from penstock.torch.world import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

__all__ = [
    "Average", "Max", "Min", "Product", "Sum", "allgather", "allgather_async", "allreduce",
    "allreduce_", "allreduce_async", "allreduce_async_", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "cross_rank", "cross_size", "init", "is_homogeneous",
    "is_initialized", "local_rank", "local_size", "poll", "rank", "shutdown", "size",
    "start_timeline", "stop_timeline", "synchronize",
]  # fmt: skip

# Horovod's numbers. 2 is its Adasum, which is not offered.
Average = 0
Sum = 1
Min = 3
Max = 4
Product = 5

_REDUCTIONS = {
    Average: c.REDUCE_SUM,
    Sum: c.REDUCE_SUM,
    Min: c.REDUCE_MIN,
    Max: c.REDUCE_MAX,
    Product: c.REDUCE_PRODUCT,
}


def resolve_op(op: int | None, average: bool | None) -> int:
    """The reduction asked for by `op` or, as in old scripts, by `average`."""
    if op is not None:
        if average is not None:
            raise ValueError(
                "The op parameter supersedes average. Please provide only one of them."
            )
        if op not in _REDUCTIONS:
            raise ValueError(f"op is {op!r}, expected Average, Sum, Min, Max or Product")
        return op
    if average is None:
        return Average
    warnings.warn(
        "Parameter `average` has been replaced with `op` and will be removed.",
        DeprecationWarning,
        stacklevel=3,
    )
    return Average if average else Sum


def check_process_set(process_set: Any | None) -> None:
    """Only the set of all ranks is offered."""
    if process_set is not None:
        raise NotImplementedError(
            "process_set is not offered: only the set of all ranks; leave it out"
        )


def _in_place(
    kind: str,
    name: str | None,
    pattern: int,
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    **fields: Any,
) -> int:
    """Starts an operation that replaces a tensor by its result.

    target: what the caller gets back: the tensor itself for `_`-forms; None for a new tensor on the
        same device.
    """
    if target is not None and usable(tensor):
        return handles.start(kind, name, pattern, tensor.detach(), lambda _: target, **fields)
    work = host_copy(tensor)

    def finish(_: Operation) -> torch.Tensor:
        if target is None:
            return work.to(tensor.device)
        with torch.no_grad():
            return target.copy_(work)

    return handles.start(kind, name, pattern, work, finish, **fields)


def _allreduce(
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
) -> int:
    check_tensor(tensor, REDUCIBLE)
    return _in_place(
        "allreduce",
        name,
        c.ALL_REDUCE,
        tensor,
        target,
        reduction=_REDUCTIONS[op],
        average=int(op == Average),
        prescale=float(prescale_factor),
        postscale=float(postscale_factor),
    )


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any | None = None,
) -> int:
    """Starts a reduction of `tensor` over all ranks into a new tensor; returns a handle."""
    check_process_set(process_set)
    return _allreduce(
        tensor, None, name, resolve_op(op, average), prescale_factor, postscale_factor
    )


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any | None = None,
) -> int:
    """As allreduce_async, in place."""
    check_process_set(process_set)
    return _allreduce(
        tensor, tensor, name, resolve_op(op, average), prescale_factor, postscale_factor
    )


class _Allreduce(torch.autograd.Function):
    """Its gradient is reduced in the same way."""

    @staticmethod
    def forward(ctx, tensor, name, op, prescale_factor, postscale_factor):  # type: ignore[no-untyped-def]
        ctx.arguments = (op, prescale_factor, postscale_factor)
        return synchronize(_allreduce(tensor, None, name, op, prescale_factor, postscale_factor))

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        return (
            _Allreduce.apply(grad_output.contiguous(), None, *ctx.arguments),
            None,
            None,
            None,
            None,
        )


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any | None = None,
) -> torch.Tensor:
    """Returns the reduction of `tensor` over all ranks; differentiable."""
    check_process_set(process_set)
    op = resolve_op(op, average)
    compressed, context = compression.compress(tensor)
    reduced = _Allreduce.apply(compressed, name, op, prescale_factor, postscale_factor)
    return compression.decompress(reduced, context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: Any | None = None,
) -> torch.Tensor:
    """As allreduce, in place and not differentiable."""
    check_process_set(process_set)
    op = resolve_op(op, average)
    return synchronize(_allreduce(tensor, tensor, name, op, prescale_factor, postscale_factor))


def allgather_rows_async(tensor: torch.Tensor, name: str | None = None) -> int:
    """As allgather_async, but the result is (tensor, rows from each rank)."""
    check_tensor(tensor, MOVABLE)
    if tensor.dim() == 0:
        raise ValueError(
            "allgather got a scalar, expected a tensor with at least one dimension; use "
            "tensor.reshape(1)"
        )
    work = tensor.detach() if usable(tensor) else host_copy(tensor)

    def finish(operation: Operation) -> tuple[torch.Tensor, list[int]]:
        address, n_bytes, rows = operation.result()
        gathered = torch.empty((sum(rows), *tensor.shape[1:]), dtype=tensor.dtype)
        expected = gathered.numel() * gathered.element_size()
        if n_bytes != expected:
            raise c.exception_from(
                12,
                f"{operation.name}: the result has {n_bytes} bytes, expected {expected} for {rows}",
            )
        if n_bytes:
            ctypes.memmove(gathered.data_ptr(), address, n_bytes)
        return gathered.to(tensor.device), rows

    return handles.start("allgather", name, c.ALL_GATHER, work, finish, in_place=False)


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: Any | None = None
) -> int:
    """Starts joining the ranks' tensors along the first dimension, which may differ (0 included);
    returns a handle."""
    check_process_set(process_set)
    handle = allgather_rows_async(tensor, name)
    return handles.then(handle, lambda result: result[0])


class _Allgather(torch.autograd.Function):
    """Its gradient is averaged over ranks; each rank takes the rows that were its own."""

    @staticmethod
    def forward(ctx, tensor, name):  # type: ignore[no-untyped-def]
        gathered, rows = synchronize(allgather_rows_async(tensor, name))
        ctx.rows = rows
        return gathered

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        averaged = allreduce(grad_output.contiguous(), op=Average)
        first = sum(ctx.rows[: rank()])
        return averaged.narrow(0, first, ctx.rows[rank()]), None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: Any | None = None
) -> torch.Tensor:
    """Returns the ranks' tensors joined along the first dimension; differentiable."""
    check_process_set(process_set)
    return _Allgather.apply(tensor, name)


def _broadcast(
    tensor: torch.Tensor, target: torch.Tensor | None, root_rank: int, name: str | None
) -> int:
    check_tensor(tensor, MOVABLE)
    if not 0 <= root_rank < size():
        raise ValueError(f"root_rank is {root_rank}, expected a rank below {size()}")
    return _in_place("broadcast", name, c.BROADCAST, tensor, target, root=root_rank)


def broadcast_async(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any | None = None
) -> int:
    """Starts sending the tensor of `root_rank` into a new tensor on every rank; returns a
    handle."""
    check_process_set(process_set)
    return _broadcast(tensor, None, root_rank, name)


def broadcast_async_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any | None = None
) -> int:
    """As broadcast_async, in place."""
    check_process_set(process_set)
    return _broadcast(tensor, tensor, root_rank, name)


class _Broadcast(torch.autograd.Function):
    """Its gradient is averaged over ranks and belongs to the root alone."""

    @staticmethod
    def forward(ctx, tensor, root_rank, name):  # type: ignore[no-untyped-def]
        ctx.root_rank = root_rank
        return synchronize(_broadcast(tensor, None, root_rank, name))

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        averaged = allreduce(grad_output.contiguous(), op=Average)
        return averaged if rank() == ctx.root_rank else averaged * 0, None, None


def broadcast(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any | None = None
) -> torch.Tensor:
    """Returns the tensor of `root_rank` on every rank; differentiable."""
    check_process_set(process_set)
    return _Broadcast.apply(tensor, root_rank, name)


def broadcast_(
    tensor: torch.Tensor, root_rank: int, name: str | None = None, process_set: Any | None = None
) -> torch.Tensor:
    """As broadcast, in place and not differentiable."""
    check_process_set(process_set)
    return synchronize(_broadcast(tensor, tensor, root_rank, name))


def barrier(process_set: Any | None = None) -> None:
    """Returns when every rank has called it."""
    check_process_set(process_set)
    synchronize(handles.start("barrier", None, c.BARRIER, None, lambda _: None))
