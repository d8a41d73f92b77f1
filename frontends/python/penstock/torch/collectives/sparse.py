"""Sparse all-reduce: every rank gathers the indices and values of all ranks. Values with equal
indices are added when the result is used."""

from __future__ import annotations

from typing import Callable

import torch

from penstock.common.process_sets import ProcessSet, global_process_set
from penstock.torch import world
from penstock.torch.collectives.allgather import allgather_async
from penstock.torch.collectives.reductions import Average, Sum, check_op
from penstock.torch.handles import synchronize
from penstock.torch.tensors import MOVABLE, check_tensor


def sparse_allreduce_async(
    tensor: torch.Tensor,
    name: str,
    op: int,
    process_set: ProcessSet = global_process_set,
) -> Callable[[], torch.Tensor]:
    """Starts the sum (or mean) of the ranks' sparse COO tensors. Returns a function that waits and
    returns the result, which is not coalesced.

    name: name of the operation; its parts are called NAME.indices and NAME.values.
    """
    if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.sparse_coo:
        raise ValueError("sparse_allreduce_async expects a sparse COO tensor")
    if check_op(op) not in (Average, Sum):
        raise ValueError(f"op is {op!r}, expected Average or Sum for a sparse tensor")
    # An all-gather joins rows, so each row holds one index.
    indices = tensor._indices().t().contiguous()
    values = tensor._values().contiguous()
    check_tensor(values, MOVABLE)  # before the first of two operations starts
    handles = [
        allgather_async(part, name=f"{name}.{what}", process_set=process_set)
        for what, part in (("indices", indices), ("values", values))
    ]
    size = world.size() if process_set is None else process_set.size()

    def wait() -> torch.Tensor:
        all_indices, all_values = (synchronize(handle) for handle in handles)
        if op == Average:
            rounding = None if all_values.dtype.is_floating_point else "trunc"
            all_values = torch.div(all_values, size, rounding_mode=rounding)
        return torch.sparse_coo_tensor(
            all_indices.t(), all_values, tensor.shape, check_invariants=True
        )

    return wait
