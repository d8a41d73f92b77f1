"""torch tensors for the runtime's operations: element types, views, and copies.

Operations need contiguous host memory. Tensors on another device or in another layout go through a
copy.
"""

from __future__ import annotations

import torch

from penstock import _library as c
from penstock.common.operation import Memory
from penstock.torch import devices

DTYPES: dict[torch.dtype, int] = {
    torch.float32: c.FLOAT32,
    torch.float16: c.FLOAT16,
    torch.bfloat16: c.BFLOAT16,
    torch.float64: c.FLOAT64,
    torch.int8: c.INT8,
    torch.uint8: c.UINT8,
    torch.int16: c.INT16,
    torch.int32: c.INT32,
    torch.int64: c.INT64,
}

# Horovod's element types for reductions, and bfloat16 as an extension. Narrow integers can only be
# moved.
REDUCIBLE: frozenset[torch.dtype] = frozenset(
    [torch.int32, torch.int64, torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
MOVABLE: frozenset[torch.dtype] = REDUCIBLE | {torch.uint8, torch.int8, torch.int16}


def check_tensor(tensor: torch.Tensor, allowed: frozenset[torch.dtype]) -> None:
    """Raises ValueError for a tensor that an operation does not accept."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if tensor.is_sparse or tensor.dtype not in allowed:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


def usable(tensor: torch.Tensor) -> bool:
    """True if named operations can work in the tensor's own memory. Tensors on a device go through
    a copy, even if gradients on that device do not."""
    if not tensor.is_cpu:
        devices.place_of(tensor)  # warns if there is a reason that the user can fix
        return False
    return tensor.is_contiguous()


def host_copy(tensor: torch.Tensor) -> torch.Tensor:
    """A contiguous copy in host memory, without history."""
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
    copy.copy_(tensor.detach())
    return copy


def memory_of(tensor: torch.Tensor) -> Memory:
    """The memory of a usable tensor for operations. Keeps the tensor alive."""
    return Memory(tuple(tensor.shape), DTYPES[tensor.dtype], tensor.data_ptr(), tensor)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor | None:
    """The tensor's memory as uint8 if operations cannot move its element type (bool, complex), else
    None."""
    if tensor.dtype in MOVABLE:
        return None
    return tensor.contiguous().reshape(-1).view(torch.uint8)
