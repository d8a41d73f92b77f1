"""All-gather: every rank receives the tensors of all ranks, joined along the first dimension."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch

from penstock import _library as c
from penstock.common.exceptions import INTERNAL, exception_from
from penstock.common.process_sets import ProcessSet, global_process_set, members_of
from penstock.common.runtime import Operation
from penstock.torch import handles, world
from penstock.torch.collectives.allreduce import allreduce
from penstock.torch.collectives.in_place import check_group
from penstock.torch.collectives.reductions import Average
from penstock.torch.handles import Finish, Request, synchronize
from penstock.torch.tensors import MOVABLE, check_tensor, in_host_memory


def check_rows(what: str, tensor: torch.Tensor) -> None:
    """ValueError for a scalar, because these operations move rows."""
    if tensor.dim() == 0:
        raise ValueError(
            f"{what} got a scalar, expected a tensor with at least one dimension; use "
            "tensor.reshape(1)"
        )


def received_rows(like: torch.Tensor) -> Finish:
    """A Finish that returns (the received tensor on the device of `like`, the number of rows from
    each rank)."""

    def finish(operation: Operation) -> tuple[torch.Tensor, list[int]]:
        address, n_bytes, rows = operation.result()
        received = torch.empty((sum(rows), *like.shape[1:]), dtype=like.dtype, device="cpu")
        expected = received.numel() * received.element_size()
        if n_bytes != expected:
            raise exception_from(
                INTERNAL,
                f"{operation.name}: the result has {n_bytes} bytes, expected {expected} for {rows}",
            )
        if n_bytes:
            ctypes.memmove(received.data_ptr(), address, n_bytes)
        return received.to(like.device), rows

    return finish


def _request(tensor: torch.Tensor, with_rows: bool) -> Request:
    check_tensor(tensor, MOVABLE)
    check_rows("allgather", tensor)
    work = in_host_memory(tensor)
    both = received_rows(tensor)
    if with_rows:
        return Request(c.ALL_GATHER, work, both)
    return Request(c.ALL_GATHER, work, lambda operation: both(operation)[0])


def allgather_rows(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet | None = None
) -> tuple[torch.Tensor, list[int]]:
    """Like allgather, but without autograd history. Returns (tensor, number of rows from each
    rank)."""
    ranks = members_of(process_set)
    return synchronize(handles.start("allgather", name, _request(tensor, True), ranks))


def allgather_async(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> int:
    """Starts an all-gather of the ranks' tensors, which are joined along the first dimension.
    Returns a handle. The first dimension may differ between ranks and may be 0."""
    ranks = members_of(process_set)
    return handles.start("allgather", name, _request(tensor, False), ranks)


def own_rows(whole: torch.Tensor, rows: Sequence[int], process_set: ProcessSet) -> torch.Tensor:
    """The part of a joined tensor that came from this rank."""
    mine = world.rank() if process_set is None else process_set.rank()
    assert mine is not None
    return whole.narrow(0, sum(rows[:mine]), rows[mine])


class _Allgather(torch.autograd.Function):
    """All-gather for autograd. The gradient is averaged over ranks; each rank takes the rows of its
    own input."""

    @staticmethod
    def forward(ctx, tensor, name, process_set):  # type: ignore[no-untyped-def]
        gathered, ctx.rows = allgather_rows(tensor, name, process_set)
        ctx.process_set = process_set
        return gathered

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        averaged = allreduce(
            grad_output.contiguous(), op=Average, process_set=ctx.process_set
        )
        return own_rows(averaged, ctx.rows, ctx.process_set), None, None


def allgather(
    tensor: torch.Tensor, name: str | None = None, process_set: ProcessSet = global_process_set
) -> torch.Tensor:
    """Returns the tensors of all ranks, joined along the first dimension. Differentiable."""
    return _Allgather.apply(tensor, name, process_set)


# ---- Grouped ----


def _start_group(
    tensors: list[torch.Tensor], with_rows: bool, name: str | None, process_set: ProcessSet | None
) -> int:
    ranks = members_of(process_set)
    requests = [_request(one, with_rows) for one in check_group("grouped_allgather", tensors)]
    return handles.start_group("grouped_allgather", name, requests, ranks)


def grouped_allgather_async(
    tensors: list[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts all-gathers of several tensors. Returns one handle, whose result is a tuple."""
    return _start_group(tensors, False, name, process_set)


class _GroupedAllgather(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, process_set, *tensors):  # type: ignore[no-untyped-def]
        results = synchronize(_start_group(list(tensors), True, name, process_set))
        ctx.rows = [rows for _, rows in results]
        ctx.process_set = process_set
        return tuple(gathered for gathered, _ in results)

    @staticmethod
    def backward(ctx, *grad_outputs):  # type: ignore[no-untyped-def]
        owned = []
        for grad, rows in zip(grad_outputs, ctx.rows):
            averaged = allreduce(grad.contiguous(), op=Average, process_set=ctx.process_set)
            owned.append(own_rows(averaged, rows, ctx.process_set))
        return (None, None, *owned)


def grouped_allgather(
    tensors: list[torch.Tensor],
    name: str | None = None,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Returns, for each of several tensors, the tensors of all ranks, joined along the first
    dimension. Differentiable."""
    whole = check_group("grouped_allgather", tensors)
    return list(_GroupedAllgather.apply(name, process_set, *whole))
