"""All that this frontend asks of torch's devices: where a tensor lies for the runtime, on which
stream it is complete, and what torch's allocator has to know.

Nothing else of the package asks torch.cuda for anything: tests on a machine without a device need
put others in the place of these functions only (tests/simulated_devices.py).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Callable

import torch

from penstock import _library as c
from penstock.common.devices import HOST, Place, why_not_in_place
from penstock.common.gradient_set import GradientSpec

# What was found of each device that was asked for.
_places: dict[torch.device, Place] = {}
_said_copied = False


def place_of(tensor: torch.Tensor) -> Place:
    """Where the runtime takes what `tensor` holds: where it lies, or HOST for what has to be copied
    to host memory first, which is said once per process, with the reason."""
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
    """For whom makes a set of these gradients, which takes memory of their devices beside torch's.
    torch's allocator keeps what was let go for itself, which after a backward may be nearly all of
    a device: it is given back. Always, for a rank that did so only where it finds too little would
    have to try again with the others."""
    if any(spec.place != HOST for spec in specs):
        torch.cuda.empty_cache()
    return specs


def current_stream(tensor: torch.Tensor) -> int:
    """The handle of the stream that is current on the tensor's device; 0 for the default one."""
    return torch.cuda.current_stream(tensor.device).cuda_stream


def used_by_current_stream(tensor: torch.Tensor) -> None:
    """The current stream waits for the runtime's copies to and from `tensor`. torch's allocator
    knows nothing of these: it gives memory that was let go to whoever works on the stream that it
    was allocated on, who need not be behind them. From now on it gives it to nobody before the
    current stream, which is behind them, has come so far."""
    tensor.record_stream(torch.cuda.current_stream(tensor.device))


def refuse_capture() -> None:
    """RuntimeError while the current stream's work is captured in a CUDA graph: the network takes
    no part in its replay."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "gradients were handed to Penstock while a CUDA graph is captured, whose replay would "
            "send nothing: capture forward and backward of a model that no DistributedOptimizer "
            "or ddp_hook follows, or leave the backward pass out of the graph"
        )


def refuse_capture_of_updates() -> None:
    """RuntimeError while the current stream's work is captured in a CUDA graph: its replay would
    update the parameters again. Nothing is lost: the updates stay outstanding."""
    if torch.cuda.is_current_stream_capturing():
        raise RuntimeError(
            "a forward is captured in a CUDA graph while updates of its parameters are outstanding, "
            "and every replay would apply them again: call optimizer.flush() before the capture"
        )


def future_of(tensor: torch.Tensor) -> torch.futures.Future:
    """A future for `tensor`. On a device whoever waits for it goes on at once when it is set, and
    waits there for what was queued on the current stream of the thread that set it."""
    return torch.futures.Future(devices=[] if tensor.is_cpu else [tensor.device])


def later(flag: torch.Tensor) -> Callable[[], bool]:
    """Whether `flag` is set, for somebody who asks later: from a device it is copied meanwhile, and
    only who asks too early waits."""
    if flag.is_cpu:
        value = bool(flag)
        return lambda: value
    # Pinned, or the copy would wait; torch keeps such memory until the copy has ended.
    copy = torch.empty_like(flag, device="cpu", pin_memory=True)
    copy.copy_(flag.detach(), non_blocking=True)
    copied = torch.cuda.Event()
    copied.record(torch.cuda.current_stream(flag.device))

    def read() -> bool:
        copied.synchronize()
        return bool(copy)

    return read


def zeros_later(tensors: list[torch.Tensor]) -> Callable[[], list[bool]]:
    """Which of `tensors` are zero all over, for somebody who asks later, as by `later`."""
    if all(tensor.is_cpu for tensor in tensors):
        zeros = [_is_zero(tensor) for tensor in tensors]
        return lambda: zeros
    answers = [later(_values(tensor).any()) for tensor in tensors]
    return lambda: [not answer() for answer in answers]


def _is_zero(tensor: torch.Tensor) -> bool:
    values = _values(tensor)
    # Hardly any gradient begins with zeros: most need not be read.
    return not values.flatten()[:64].any() and not values.any()


def _values(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
    return tensor._values() if tensor.is_sparse else tensor
