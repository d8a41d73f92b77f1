"""All access of this frontend to torch's devices: the place of a tensor for the runtime, the keys by
which torch marks its memory, the stream on which it is complete, and the notes that torch's
allocator needs.

No other module of the package uses torch.cuda. Tests on a machine without a device therefore
replace only the functions of this module (tests/simulated_devices.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Callable

import torch

from penstock import _library as c
from penstock.common.devices import HOST, Place, why_not_in_place
from penstock.common.gradient_set import GradientSpec

# The place of each device that was asked for.
_places: dict[torch.device, Place] = {}
_said_copied = False

# torch marks with dispatch keys what the memory of a tensor means: negated or conjugated lazily,
# zeros without memory, sparse, nested, quantized, on the meta device, a subclass that computes its
# values. Only a tensor with the keys of a new, dense tensor has its values in its memory as they
# are. A property that a later torch adds has a key of its own, so this holds for it too.
dispatch_keys = torch._C._dispatch_keys
# What can be compared: an integer, and in old versions of torch only a text.
raw_keys = getattr(torch._C.DispatchKeySet, "raw_repr", repr)


def _usual_keys(device: torch.device) -> object:
    with torch.inference_mode(False):  # a tensor of this mode has fewer keys
        return raw_keys(dispatch_keys(torch.empty(0, device=device)))


USUAL_KEYS = _usual_keys(torch.device("cpu"))
_usual: dict[torch.device, object] = {}  # of each device that was asked for


def is_usual(tensor: torch.Tensor) -> bool:
    """True if the tensor has the keys of a new tensor on its device."""
    usual = _usual.get(tensor.device)
    if usual is None:
        usual = _usual[tensor.device] = _usual_keys(tensor.device)
    return raw_keys(dispatch_keys(tensor)) == usual


def place_of(tensor: torch.Tensor) -> Place:
    """The place at which the runtime accepts the values of `tensor`: its own place, or HOST if it
    must be copied to host memory first. A warning names the reason, once per process."""
    if tensor.is_cpu:
        return HOST
    place = _places.get(tensor.device)
    if place is None:
        place = _places[tensor.device] = _find_place(tensor.device)
    return place


def _find_place(device: torch.device) -> Place:
    if device.type != "cuda":
        _say_copied(device, "Penstock knows the CPU and CUDA only")
        return HOST
    reason = why_not_in_place(device.index)
    if reason:
        _say_copied(device, reason)
        return HOST
    return Place(c.DEVICE_CUDA, device.index)


def _say_copied(device: torch.device, reason: str) -> None:
    global _said_copied
    if _said_copied:
        return
    _said_copied = True
    warnings.warn(
        f"tensors on {device.type} are copied through host memory, there and back, and each copy "
        f"waits for the device: {reason}",
        stacklevel=5,
    )


def with_room(specs: Sequence[GradientSpec]) -> Sequence[GradientSpec]:
    """Makes torch's allocator return unused device memory, and returns `specs`. Call it before a
    set is made, because the set needs memory on the gradients' devices. After a backward, torch's
    allocator may hold nearly all memory of a device for reuse. The memory is returned always: if a
    rank did so only after a failed attempt, all ranks would have to try again."""
    if any(spec.place != HOST for spec in specs):
        torch.cuda.empty_cache()
    return specs


def current_stream(tensor: torch.Tensor) -> int:
    """The handle of the current stream of the tensor's device; 0 for the default stream."""
    return torch.cuda.current_stream(tensor.device).cuda_stream


def used_by_current_stream(tensor: torch.Tensor) -> None:
    """Notes in torch's allocator that the current stream uses the memory of `tensor`. The current
    stream waits for the runtime's copies to and from the tensor, but the allocator does not know
    these copies: it could reuse freed memory on the stream of its allocation before they have
    ended. After this call it reuses the memory only when the current stream has reached this
    point."""
    tensor.record_stream(torch.cuda.current_stream(tensor.device))


def refuse_capture() -> None:
    """RuntimeError while the current stream's work is captured in a CUDA graph, because a replay of
    the graph would send no messages."""
    _refuse_while_capturing(
        "gradients were handed to Penstock while a CUDA graph is captured, whose replay would "
        "send nothing: capture forward and backward of a model that no DistributedOptimizer "
        "or ddp_hook follows, or leave the backward pass out of the graph"
    )


def refuse_capture_of_updates() -> None:
    """RuntimeError while the current stream's work is captured in a CUDA graph, because a replay
    would update the parameters again. The updates stay outstanding, so nothing is lost."""
    _refuse_while_capturing(
        "a forward is captured in a CUDA graph while updates of its parameters are outstanding, "
        "and every replay would apply them again: call optimizer.flush() before the capture"
    )


def refuse_capture_of_steps() -> None:
    """RuntimeError while the current stream's work is captured in a CUDA graph, because a replay
    would train without counting the steps of a round."""
    _refuse_while_capturing(
        "a step of LocalSteps is captured in a CUDA graph, and a replay would not count it: leave "
        "optimizer.step() out of the graph"
    )


def _refuse_while_capturing(why: str) -> None:
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(why)


def future_of(tensor: torch.Tensor) -> torch.futures.Future:
    """A future for `tensor`. On a device, a thread that waits for the future continues as soon as
    it is set. That thread's stream then waits for the work on the current stream of the thread that
    set it."""
    return torch.futures.Future(devices=[] if tensor.is_cpu else [tensor.device])


def later(flag: torch.Tensor) -> Callable[[], bool]:
    """Returns a function that reads `flag` later. A flag on a device is copied meanwhile; the
    function waits only if it is called before the copy has ended."""
    if flag.is_cpu:
        value = bool(flag)
        return lambda: value
    # In pinned memory, otherwise the host would wait for the copy. torch keeps such memory until
    # the copy has ended.
    copy = torch.empty_like(flag, device="cpu", pin_memory=True)
    copy.copy_(flag.detach(), non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(flag.device))

    def read() -> bool:
        copied.synchronize()
        return bool(copy)

    return read


def zeros_later(tensors: list[torch.Tensor]) -> Callable[[], list[bool]]:
    """Returns a function that reports later, like `later`, for each tensor whether all its elements
    are zero."""
    if all(tensor.is_cpu for tensor in tensors):
        zeros = [_is_zero(tensor) for tensor in tensors]
        return lambda: zeros
    answers = [later(_values(tensor).any()) for tensor in tensors]
    return lambda: [not answer() for answer in answers]


def _is_zero(tensor: torch.Tensor) -> bool:
    values = _values(tensor)
    # Few gradients begin with zeros, so most gradients need not be read completely.
    return not values.flatten()[:64].any() and not values.any()


def _values(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    tensor = getattr(tensor, "_local_tensor", tensor)  # the local part of a DTensor
    return tensor._values() if tensor.is_sparse else tensor
