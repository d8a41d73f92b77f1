"""Reductions of FSDP2 that travel while backward goes on.

On the CPU, FSDP2 only keeps the result of a reduction as a gradient, which nothing reads before
backward has ended. So the call returns as soon as the gradients are handed in, and the result is
put into FSDP2's buffer when backward ends. If FSDP2 computes with the result at once, the call
waits for it: accumulation, another type of the parameters, offloading, hooks, a division after the
sum, HSDP. The same holds for a torch whose FSDP2 has other attributes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable

import torch
import torch.distributed as dist

MOST = 2  # reductions under way: each keeps the whole gradients of its module in memory

_under_way: list[Callable[[], None]] = []  # what finishes them, in the order of the calls


def may_travel(groups: Iterable[Any], result: torch.Tensor, op: Any) -> bool:
    """True if nothing reads `result`, the output of a reduction, before backward has ended.

    groups: the FSDPParamGroup objects of torch that asked for the reduction."""
    found = list(groups)
    if not found or op != dist.ReduceOp.AVG or result.device.type != "cpu":
        return False
    try:
        return all(_only_keeps(group, result.dtype) for group in found)
    except AttributeError:
        return False


def _only_keeps(group: Any, dtype: torch.dtype) -> bool:
    # Other types than these two are divided after the sum.
    if group._orig_dtype != dtype or dtype not in (torch.float32, torch.bfloat16):
        return False
    if group._is_hsdp or group._all_reduce_hook is not None:
        return False
    return not any(
        parameter.offload_to_cpu
        or parameter.sharded_param.grad is not None
        or getattr(parameter.sharded_param, "_post_accumulate_grad_hooks", None)
        for parameter in group.fsdp_params
    )


def begin(finish: Callable[[], None]) -> None:
    """Notes a reduction that has begun. `finish` waits for it; it calls `ended`. Waits for the
    oldest reduction if there are more than MOST."""
    _under_way.append(finish)
    while len(_under_way) > MOST:
        _under_way[0]()


def ended(finish: Callable[[], None]) -> None:
    """Notes that a reduction has ended."""
    if finish in _under_way:
        _under_way.remove(finish)


def at_end_of_backward(function: Callable[[], None]) -> None:
    """Calls `function` when the present backward has ended, after FSDP2's own work."""
    torch.autograd.Variable._execution_engine.queue_callback(function)
