"""The outer step: the update of the anchors from the mean drift of the ranks.

Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from ctypes import byref
from dataclasses import dataclass
from typing import Any

import torch

from penstock import _library as c
from penstock.torch.tensors import DTYPES, readable_by_address


def are_finite(tensors: Sequence[torch.Tensor]) -> list[bool]:
    """For each tensor, whether no element is infinite or NaN. Tensors on a device are queued
    together, and then the host waits."""
    # A sum is the quickest sweep. It is finite only if all elements are.
    totals = [one.sum() for one in tensors]
    return [
        math.isfinite(total.item()) or _has_finite_range(one)
        for one, total in zip(tensors, totals)
    ]


def _has_finite_range(tensor: torch.Tensor) -> bool:
    # A NaN is both the least and the largest.
    return bool(torch.isfinite(torch.stack(torch.aminmax(tensor))).all())


def _mix_in(values: torch.Tensor, anchor: torch.Tensor, mix: float) -> None:
    if mix == 0:
        values.copy_(anchor)
        return
    own = values.to(anchor.dtype)
    values.copy_(own * mix + anchor.to(values.device) * (1 - mix))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


@dataclass(frozen=True)
class OuterStep:
    """SGD on the anchors, with the mean drift D as the gradient. With momentum M, m <- M m + D;
    then anchor <- anchor - lr (D + M m) with Nesterov, or anchor <- anchor - lr m without it.

    The defaults are DiLoCo's. ``lr=1, momentum=0`` averages the parameters (Local SGD). ValueError
    for a learning rate that is not above 0, or a momentum outside [0, 1)."""

    lr: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True

    def __post_init__(self) -> None:
        if not (_is_number(self.lr) and 0 < self.lr < math.inf):
            raise ValueError(f"the outer lr is {self.lr!r}, expected a number above 0, such as 0.7")
        if not (_is_number(self.momentum) and 0 <= self.momentum < 1):
            raise ValueError(
                f"the outer momentum is {self.momentum!r}, expected a number from 0 to below 1"
            )

    @property
    def has_momentum(self) -> bool:
        """True if the outer step keeps a momentum for each parameter."""
        return self.momentum > 0

    def take(
        self,
        anchor: torch.Tensor,
        drift: torch.Tensor,
        momentum: torch.Tensor | None,
        values: torch.Tensor,
        mix: float,
    ) -> None:
        """Changes `anchor` and `momentum` in place, and moves `values`, the parameter itself, to
        mix * values + (1 - mix) * anchor, in the anchor's element type. May change `drift`, the
        mean of the ranks. `anchor`, `drift` and `momentum` are contiguous, with one shape, element
        type and device."""
        if anchor.device.type != "cpu":
            self._take_on_device(anchor, drift, momentum)
            _mix_in(values, anchor, mix)
            return
        own = values if readable_by_address(values, anchor.dtype, anchor.numel()) else None
        self._take_on_host(anchor, drift, momentum, own, mix)
        if own is None:
            _mix_in(values, anchor, mix)
        else:
            own.view(-1)[:0].zero_()  # autograd notices changes only through operations of torch

    def _take_on_host(
        self,
        anchor: torch.Tensor,
        drift: torch.Tensor,
        momentum: torch.Tensor | None,
        values: torch.Tensor | None,
        mix: float,
    ) -> None:
        """One sweep of the core over all arrays."""
        library = c.library()
        step = c.OuterStep(
            anchor=anchor.data_ptr(),
            drift=drift.data_ptr(),
            momentum=None if momentum is None else momentum.data_ptr(),
            values=None if values is None else values.data_ptr(),
            count=anchor.numel(),
            lr=self.lr,
            factor=self.momentum,
            mix=mix,
            dtype=DTYPES[anchor.dtype],
            nesterov=int(self.nesterov),
        )
        library.check(library.take_outer_step(byref(step)))

    def _take_on_device(
        self, anchor: torch.Tensor, drift: torch.Tensor, momentum: torch.Tensor | None
    ) -> None:
        # Products and sums are rounded apart. A fused operation (`alpha=`) gives other bits on
        # another kind of device, and anchors must have equal bits on all ranks.
        if momentum is not None:
            momentum.mul_(self.momentum).add_(drift)
            if self.nesterov:
                drift.add_(momentum * self.momentum)
            else:
                drift.copy_(momentum)
        if self.lr != 1:
            drift.mul_(self.lr)
        anchor.sub_(drift)


AVERAGE = OuterStep(lr=1.0, momentum=0.0)


def outer_of(outer: Any) -> OuterStep:
    """The outer step of an argument; None averages the parameters. ValueError for anything else."""
    if outer is None:
        return AVERAGE
    if isinstance(outer, OuterStep):
        return outer
    raise ValueError(
        f"outer is {outer!r} of type {type(outer).__name__}, expected an hvd.OuterStep such as "
        "hvd.OuterStep(lr=0.7, momentum=0.9), or None, which averages the parameters"
    )
