"""torch tensors for the core: element types, and the two ways of values into the core. It reads a
tensor by address, which `readable_by_address` alone allows, or it reads a `plain_copy`.

Named operations need host memory. Gradients of a set may lie on a device.
"""

from __future__ import annotations

import torch

from penstock import _library as c
from penstock.common.devices import HOST, Place
from penstock.common.operation import Memory
from penstock.torch import devices
from penstock.torch.devices import dispatch_keys, raw_keys

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


# ---- the two ways into the core ----


def readable_by_address(
    tensor: torch.Tensor,
    dtype: torch.dtype | None = None,
    count: int | None = None,
    place: Place = HOST,
) -> bool:
    """True if the core may read and write the values of `tensor` at its address: they lie there one
    after another, as they are, in the place that the core expects.

    dtype, count: the element type and the number of elements as the core knows them; None: the core
    gets the tensor's own with the address.
    """
    if place == HOST:
        is_usual = raw_keys(dispatch_keys(tensor)) == devices.USUAL_KEYS
    else:
        is_usual = devices.place_of(tensor) == place and devices.is_usual(tensor)
    # The keys are compared first: some tensors with other keys raise errors if they are asked more.
    return (
        is_usual
        and tensor.is_contiguous()
        and (dtype is None or tensor.dtype is dtype)
        and (count is None or tensor.numel() == count)
    )


def plain_copy(tensor: torch.Tensor, device: torch.device | str = "cpu") -> torch.Tensor:
    """A copy of the values that is readable by address, without history."""
    if device == "cpu":
        devices.place_of(tensor)  # warns if there is a reason that the user can fix
    copy = torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
    values = tensor.detach()
    return copy.copy_(values.rename(None) if values.has_names() else values)


def in_host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor without history if the core can read it by address, else a plain copy."""
    return tensor.detach() if readable_by_address(tensor) else plain_copy(tensor)


def write(target: torch.Tensor, values: torch.Tensor) -> None:
    """Copies `values` into `target`, without history."""
    # torch lets nobody write to an inference tensor outside of this mode.
    with torch.inference_mode(target.is_inference()), torch.no_grad():
        target.copy_(values)


def may_be_written(tensor: torch.Tensor) -> bool:
    """False if elements share memory, as after `expand`, or have none."""
    if tensor._is_zerotensor():
        return False
    reach = 0  # the distance from the first to the last element in the dimensions so far
    for stride, extent in sorted(zip(tensor.stride(), tensor.shape)):
        if extent > 1 and stride <= reach:
            return tensor.numel() == 0
        reach += stride * (extent - 1)
    return True


def memory_of(tensor: torch.Tensor) -> Memory:
    """The memory of a tensor that is readable by address, for operations. Keeps the tensor
    alive."""
    if not readable_by_address(tensor):
        raise ValueError(
            f"an operation got memory of a {type(tensor).__name__}, expected a plain torch.Tensor: "
            "if a mode of torch (such as FakeTensorMode) replaces new tensors, leave it before the "
            "operation"
        )
    return Memory(tuple(tensor.shape), DTYPES[tensor.dtype], tensor.data_ptr(), tensor)


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor that is readable by address, as uint8 if operations cannot move its element type
    (bool, complex)."""
    if tensor.dtype in MOVABLE:
        return tensor
    # A dimension with one element may have any stride, also in contiguous memory.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8)


# ---- what cannot be copied ----


def check_has_values(what: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor of which no dense copy has the values.

    what: the tensor's name in the message, such as "gradient weight".
    """
    odd = _odd(tensor)
    if odd:
        kind, remedy = odd
        raise ValueError(f"{what} {kind}, expected a dense tensor with all its values: {remedy}")


def check_may_be_written(what: str, tensor: torch.Tensor) -> None:
    """ValueError for a tensor that cannot receive values from the core."""
    check_has_values(what, tensor)
    if not may_be_written(tensor):
        raise ValueError(
            f"{what} has elements that share memory, as after expand(), expected a place for each "
            "value that is received: use clone() of it instead"
        )


def _odd(tensor: torch.Tensor) -> tuple[str, str] | None:
    """What is unusual about the tensor, and the remedy."""
    if hasattr(tensor, "_local_tensor"):
        return (
            "is a DTensor, of which each rank has a part",
            "give the part (to_local()) or the whole (full_tensor()); gradients of FSDP2 need "
            "penstock.torch.fsdp.reduce_through_penstock(model)",
        )
    if tensor.is_nested:
        return "is a nested tensor", "give its parts (unbind()), one by one"
    if tensor.is_meta:
        return "is on the meta device, which keeps no values", (
            'make its memory first, for a module by module.to_empty(device="cpu") and its values'
        )
    if tensor.is_quantized:
        return f"is quantized ({tensor.dtype})", "give its values (dequantize())"
    if tensor.layout is not torch.strided:
        return f"has the layout {tensor.layout}", "give its values (to_dense())"
    return None


def check_tensor(tensor: torch.Tensor, allowed: frozenset[torch.dtype]) -> None:
    """Raises ValueError for a tensor that an operation does not accept."""
    if not isinstance(tensor, torch.Tensor):
        raise ValueError(f"expected a torch.Tensor, got {type(tensor).__name__}")
    if not tensor.is_sparse:
        check_has_values("the tensor of an operation", tensor)
    if tensor.is_sparse or tensor.dtype not in allowed:
        raise ValueError(f"Tensor type {tensor.type()} is not supported.")
    if not tensor.is_contiguous():
        raise ValueError("Tensor is required to be contiguous.")


# ---- gradients ----


def gradient_dtype(parameter: torch.Tensor) -> torch.dtype:
    """The element type of the parameter's gradients. Since torch 2.10 it may differ from the
    parameter's own; a `grad_dtype` of None allows any, and most have the parameter's."""
    return getattr(parameter, "grad_dtype", None) or parameter.dtype


def zero_gradient(parameter: torch.Tensor) -> torch.Tensor:
    """A gradient of zeros for the parameter."""
    return torch.zeros_like(parameter, dtype=gradient_dtype(parameter), requires_grad=False)
