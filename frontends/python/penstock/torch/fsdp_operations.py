"""The operations that FSDP2's reducers start outside their sets."""

from __future__ import annotations

import weakref
from typing import Any

import torch

from penstock import _library as c
from penstock.torch import handles, world
from penstock.torch.collectives.reductions import Average, Min, Sum, reduction_fields


_compare_nothing: weakref.WeakSet[Any] = weakref.WeakSet()  # runtimes


def refuse_comparisons() -> None:
    """ValueError if the run compares parameters again and again: under FSDP2 each rank has its own
    shards."""
    runtime = world.current()
    if runtime in _compare_nothing:
        return
    every = runtime.report()["check_parameters_every"]
    if every != 0:
        raise ValueError(
            f"check_parameters_every of [runtime] is {every}, but under FSDP2 the ranks hold "
            "different shards of the parameters, so there is nothing to compare: remove the key"
        )
    _compare_nothing.add(runtime)


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
