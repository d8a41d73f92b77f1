"""The outer step: the update of the anchors from the mean drift of the ranks.

Source: Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
algorithm 1.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

_PART = 1 << 15  # elements; the tensors of a part stay in a processor's cache between operations


def in_parts(*tensors: torch.Tensor | None) -> Iterator[tuple[Any, ...]]:
    """The tensors, of one shape each or None, part by part: operations on every element then read
    and write memory once, not once for each operation. The whole tensors at once on a device, or if
    one of them is not contiguous."""
    given = [one for one in tensors if one is not None]
    if not all(one.device.type == "cpu" and one.is_contiguous() for one in given):
        yield tensors
        return
    flat = [None if one is None else one.view(-1) for one in tensors]
    for first in range(0, max(given[0].numel(), 1), _PART):
        yield tuple(None if one is None else one[first : first + _PART] for one in flat)


def is_finite(tensor: torch.Tensor) -> torch.Tensor:
    """Whether no element is infinite or NaN: one bool, on the tensor's device."""
    if tensor.numel() == 0:
        return torch.tensor(True)
    if tensor.device.type == "cpu":
        # A sum is the quickest sweep. It is finite only if all elements are.
        total = torch.isfinite(tensor.sum())
        if bool(total):
            return total
    # A NaN is both the least and the largest. This is one sweep; isfinite() of all is several.
    return torch.isfinite(torch.stack(torch.aminmax(tensor))).all()


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

    def move(
        self, anchor: torch.Tensor, drift: torch.Tensor, momentum: torch.Tensor | None
    ) -> None:
        """Changes `anchor` and `momentum` in place. May change `drift`, the mean of the ranks. All
        three have one shape, element type and device."""
        # Products and sums are rounded apart. A fused operation (`alpha=`) gives other bits on
        # another kind of processor, and anchors must have equal bits on all ranks.
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
