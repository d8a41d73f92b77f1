"""All-reduce: every rank receives the reduction of the tensors of all ranks."""

from __future__ import annotations

from typing import Any

import torch

from penstock import _library as c
from penstock.common.process_sets import ProcessSet, global_process_set, members_of
from penstock.torch import handles
from penstock.torch.collectives.in_place import check_group, replacing
from penstock.torch.collectives.reductions import reduction_fields, resolve_op
from penstock.torch.compression import Compression
from penstock.torch.handles import Request, synchronize
from penstock.torch.tensors import REDUCIBLE, check_tensor


def _request(
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
) -> Request:
    check_tensor(tensor, REDUCIBLE)
    fields = reduction_fields(op, prescale_factor, postscale_factor)
    return replacing(c.ALL_REDUCE, tensor, target, fields)


def _start(
    tensor: torch.Tensor,
    target: torch.Tensor | None,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet | None,
) -> int:
    ranks = members_of(process_set)
    request = _request(tensor, target, op, prescale_factor, postscale_factor)
    return handles.start("allreduce", name, request, ranks)


def allreduce_async(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts a reduction of `tensor` over the ranks into a new tensor. Returns a handle."""
    op = resolve_op(op, average)
    return _start(tensor, None, name, op, prescale_factor, postscale_factor, process_set)


def allreduce_async_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Like allreduce_async, but in place."""
    op = resolve_op(op, average)
    return _start(tensor, tensor, name, op, prescale_factor, postscale_factor, process_set)


class _Allreduce(torch.autograd.Function):
    """All-reduce for autograd. The gradient is reduced with the arguments of the forward call."""

    @staticmethod
    def forward(ctx, tensor, name, *arguments):  # type: ignore[no-untyped-def]
        ctx.arguments = arguments
        return synchronize(_start(tensor, None, name, *arguments))

    @staticmethod
    def backward(ctx, grad_output):  # type: ignore[no-untyped-def]
        reduced = _Allreduce.apply(grad_output.contiguous(), None, *ctx.arguments)
        return (reduced, None, *(None for _ in ctx.arguments))


def allreduce(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Returns the reduction of `tensor` over the ranks. Differentiable."""
    op = resolve_op(op, average)
    compressed, context = compression.compress(tensor)
    reduced = _Allreduce.apply(
        compressed, name, op, prescale_factor, postscale_factor, process_set
    )
    return compression.decompress(reduced, context)


def allreduce_(
    tensor: torch.Tensor,
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> torch.Tensor:
    """Like allreduce, but in place and not differentiable."""
    op = resolve_op(op, average)
    return synchronize(
        _start(tensor, tensor, name, op, prescale_factor, postscale_factor, process_set)
    )


# ---- Grouped ----


def _start_group(
    tensors: list[torch.Tensor],
    in_place: bool,
    name: str | None,
    op: int,
    prescale_factor: float,
    postscale_factor: float,
    process_set: ProcessSet | None,
) -> int:
    ranks = members_of(process_set)
    requests = [
        _request(one, one if in_place else None, op, prescale_factor, postscale_factor)
        for one in check_group("grouped_allreduce", tensors)
    ]
    return handles.start_group("grouped_allreduce", name, requests, ranks)


def grouped_allreduce_async(
    tensors: list[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Starts the reductions of several tensors. Returns one handle, whose result is a tuple of new
    tensors."""
    op = resolve_op(op, average)
    return _start_group(tensors, False, name, op, prescale_factor, postscale_factor, process_set)


def grouped_allreduce_async_(
    tensors: list[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> int:
    """Like grouped_allreduce_async, but in place."""
    op = resolve_op(op, average)
    return _start_group(tensors, True, name, op, prescale_factor, postscale_factor, process_set)


class _GroupedAllreduce(torch.autograd.Function):
    """Grouped all-reduce for autograd. The gradients are reduced as a group with the arguments of
    the forward call."""

    @staticmethod
    def forward(ctx, name, op, prescale_factor, postscale_factor, process_set, *tensors):  # type: ignore[no-untyped-def]
        ctx.arguments = (op, prescale_factor, postscale_factor, process_set)
        return synchronize(_start_group(list(tensors), False, name, *ctx.arguments))

    @staticmethod
    def backward(ctx, *grad_outputs):  # type: ignore[no-untyped-def]
        whole = [one.contiguous() for one in grad_outputs]
        reduced = _GroupedAllreduce.apply(None, *ctx.arguments, *whole)
        return (None, None, None, None, None, *reduced)


def grouped_allreduce(
    tensors: list[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    compression: Any = Compression.none,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Returns the reductions of several tensors. Differentiable."""
    op = resolve_op(op, average)
    compressed = [
        compression.compress(one) for one in check_group("grouped_allreduce", tensors)
    ]
    reduced = _GroupedAllreduce.apply(
        name,
        op,
        prescale_factor,
        postscale_factor,
        process_set,
        *(tensor for tensor, _ in compressed),
    )
    return [
        compression.decompress(one, context) for one, (_, context) in zip(reduced, compressed)
    ]


def grouped_allreduce_(
    tensors: list[torch.Tensor],
    average: bool | None = None,
    name: str | None = None,
    op: int | None = None,
    prescale_factor: float = 1.0,
    postscale_factor: float = 1.0,
    process_set: ProcessSet = global_process_set,
) -> list[torch.Tensor]:
    """Like grouped_allreduce, but in place and not differentiable."""
    op = resolve_op(op, average)
    handle = _start_group(tensors, True, name, op, prescale_factor, postscale_factor, process_set)
    return list(synchronize(handle))
