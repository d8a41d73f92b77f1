"""Common functions of operations whose result has the shape of their input."""

from __future__ import annotations

from typing import Any

import torch

from penstock.common.runtime import Operation
from penstock.torch.handles import Request
from penstock.torch.tensors import plain_copy, readable_by_address, write


def replacing(
    pattern: int, tensor: torch.Tensor, target: torch.Tensor | None, fields: dict[str, Any]
) -> Request:
    """A request for an operation that replaces a tensor by its result.

    target: the tensor that the caller receives: `tensor` itself for `_`-forms; None for a new
        tensor on the device of `tensor`.
    """
    if target is not None and readable_by_address(tensor):
        plain = tensor.detach()
        return Request(pattern, plain, lambda _: target, output=plain, fields=fields)
    work = plain_copy(tensor)

    def finish(_: Operation) -> torch.Tensor:
        if target is None:
            return work.to(tensor.device)
        write(target, work)
        return target

    return Request(pattern, work, finish, output=work, fields=fields)


def check_group(what: str, tensors: Any) -> list[torch.Tensor]:
    """The tensors of a grouped operation. ValueError if there is none."""
    if isinstance(tensors, torch.Tensor) or not isinstance(tensors, (list, tuple)) or not tensors:
        raise ValueError(f"{what} expects a list of at least one torch.Tensor, got {tensors!r}")
    return list(tensors)
