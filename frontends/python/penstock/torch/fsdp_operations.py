"""The operations that FSDP2's reducers start outside their sets."""

from __future__ import annotations

import torch

from penstock import _library as c
from penstock.torch import handles
from penstock.torch.collectives.reductions import Average, Min, Sum, reduction_fields


def all_say(is_zero: bool, name: str, ranks: tuple[int, ...]) -> bool:
    """True if `is_zero` is true on all of these ranks. Collective."""
    answer = torch.tensor([int(is_zero)], dtype=torch.int32, device="cpu")
    request = handles.Request(
        c.ALL_REDUCE, answer, lambda _: answer, output=answer,
        fields=reduction_fields(Min, 1.0, 1.0),
    )  # fmt: skip
    handles.synchronize(handles.start("fsdp", name, request, ranks))
    return bool(answer)


def reduce_scatter(
    flat: torch.Tensor, ranks: tuple[int, ...], average: bool, n_mine: int
) -> torch.Tensor:
    """This rank's `n_mine` elements of the mean (or sum) of all ranks' `flat`. Collective."""
    output = torch.empty(n_mine, dtype=flat.dtype, device="cpu")
    request = handles.Request(
        c.REDUCE_SCATTER, flat, lambda _: output, output=output,
        fields=reduction_fields(Average if average else Sum, 1.0, 1.0),
    )  # fmt: skip
    return handles.synchronize(handles.start("fsdp", None, request, ranks))
