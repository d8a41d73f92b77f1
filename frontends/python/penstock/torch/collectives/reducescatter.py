"""Reduce-scatter: the tensors of all ranks are reduced, and each rank receives some rows of the
result."""

from __future__ import annotations

from typing import Any

import torch

from penstock import _library as c
from penstock.common.process_sets import ProcessSet, global_process_set, members_of
from penstock.torch import handles, world
from penstock.torch.collectives.allgather import allgather, check_rows
from penstock.torch.collectives.in_place import check_group
from penstock.torch.collectives.reductions import Average, Sum, check_op, reduction_fields
from penstock.torch.compression import Compression
from penstock.torch.handles import Request, synchronize
from penstock.torch.tensors import REDUCIBLE, check_tensor, in_host_memory


def _request(
    tensor: torch.Tensor,
    op: int,
    ranks: tuple[int, ...],
    prescale_factor: float,
    postscale_factor: float,
) -> Request:
    check_tensor(tensor, REDUCIBLE)
    check_rows("reducescatter", tensor)
    fields = reduction_fields(check_op(op), prescale_factor, postscale_factor)
    size = len(ranks) or world.size()
    mine = ranks.index(world.rank()) if ranks else world.rank()
    # Rows that do not divide evenly go to the lowest ranks, one row each.
    rows = tensor.shape[0] // size + (1 if mine < tensor.shape[0] % size else 0)
    work = in_host_memory(tensor)
    output = torch.empty((rows, *tensor.shape[1:]), dtype=tensor.dtype, device="cpu")
    return Request(
        c.REDUCE_SCATTER, work, lambda _: output.to(tensor.device), output=output, fields=fields
    )


def _start(
    tensor: torch.Tensor,
    name: str | None,
    op: int,
    process_set: ProcessSet | None,
    prescale_factor: float,
    postscale_factor: float,
) -> int:
    ranks = members_of(process_set)
    request = _request(tensor, op, ranks, prescale_factor, postscale_factor)
    return handles.start("reducescatter", name, request, ranks)


def reducescatter_async(
    tensor: torch.Tensor,
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts a reduction whose rows are distributed over the ranks. Returns a handle. Rows that do
    not divide evenly go to the lowest ranks, one row each."""
    return _start(tensor, name, op, process_set, prescale_factor, postscale_factor)


def _gradient(
    grad_output: torch.Tensor,
    op: int,
    process_set: ProcessSet | None,
    prescale_factor: float,
    postscale_factor: float,
) -> torch.Tensor:
    size = len(members_of(process_set)) or world.size()
    factor = float(prescale_factor) * float(postscale_factor) * (size if op == Sum else 1)
    scaled = grad_output * factor if factor != 1 else grad_output
    return allgather(
        scaled.contiguous(), process_set=global_process_set if process_set is None else process_set
    )


class _Reducescatter(torch.autograd.Function):
    """Reduce-scatter for autograd. The gradients of the parts are gathered."""

    @staticmethod
    def forward(ctx, tensor, name, *arguments):  # type: ignore[no-untyped-def]
        ctx.arguments = arguments
        return synchronize(_start(tensor, name, *arguments))

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        return (_gradient(grad_output, *ctx.arguments), None, *(None for _ in ctx.arguments))


def reducescatter(
    tensor: torch.Tensor,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> torch.Tensor:
    """Returns this rank's rows of the reduction of `tensor` over the ranks. Differentiable."""
    compressed, context = compression.compress(tensor)
    reduced = _Reducescatter.apply(
        compressed, name, op, process_set, prescale_factor, postscale_factor
    )
    return compression.decompress(reduced, context)


# ---- Grouped ----


def _start_group(
    tensors: list[torch.Tensor],
    name: str | None,
    op: int,
    process_set: ProcessSet | None,
    prescale_factor: float,
    postscale_factor: float,
) -> int:
    ranks = members_of(process_set)
    requests = [
        _request(one, op, ranks, prescale_factor, postscale_factor)
        for one in check_group("grouped_reducescatter", tensors)
    ]
    return handles.start_group("grouped_reducescatter", name, requests, ranks)


def grouped_reducescatter_async(
    tensors: list[torch.Tensor],
    name: str | None = None,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> int:
    """Starts reduce-scatters of several tensors. Returns one handle, whose result is a tuple."""
    return _start_group(tensors, name, op, process_set, prescale_factor, postscale_factor)


class _GroupedReducescatter(torch.autograd.Function):
    @staticmethod
    def forward(ctx, name, op, process_set, prescale_factor, postscale_factor, *tensors):  # type: ignore[no-untyped-def]
        ctx.arguments = (op, process_set, prescale_factor, postscale_factor)
        return synchronize(_start_group(list(tensors), name, *ctx.arguments))

    @staticmethod
    def backward(ctx, *grad_outputs):  # type: ignore[no-untyped-def]
        grads = [_gradient(grad, *ctx.arguments) for grad in grad_outputs]
        return (None, None, None, None, None, *grads)


def grouped_reducescatter(
    tensors: list[torch.Tensor],
    name: str | None = None,
    compression: Any = Compression.none,
    op: int = Average,
    process_set: ProcessSet = global_process_set,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
) -> list[torch.Tensor]:
    """Returns this rank's rows of the reductions of several tensors. Differentiable."""
    compressed = [
        compression.compress(one) for one in check_group("grouped_reducescatter", tensors)
    ]
    reduced = _GroupedReducescatter.apply(
        name,
        op,
        process_set,
        prescale_factor,
        postscale_factor,
        *(tensor for tensor, _ in compressed),
    )
    return [
        compression.decompress(one, context) for one, (_, context) in zip(reduced, compressed)
    ]
