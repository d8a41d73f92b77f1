"""The base of every simulated method: gradients of P ranks in, one update direction out, per-rank state inside.

Conservation, for each method that keeps its unsent values (r = rank, t = step, all element-wise):

    sum_r kept_r(t+1) + P * update(t) = sum_r (kept_r(t) + gradient_r(t))
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

Gradients = dict[str, torch.Tensor]


@dataclass(frozen=True)
class Item:
    """One gradient as the methods see it."""

    name: str
    index: int  # position in registration order, equal on every rank
    shape: tuple[int, ...]
    first: int = 0  # of a part: the place of its first element in the gradient
    leg: int = 0  # of the route, on which it is sent: each leg has random numbers of its own

    def sender(self, rank: int) -> int:
        """The number of a sender in random_uniform.hpp, for a rank of the leg."""
        return self.leg << 32 | rank

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def rows(self) -> int:
        """Matrix view: the first dimension by the product of the others; 1-D is numel by 1."""
        return self.shape[0] if self.shape else 1

    @property
    def cols(self) -> int:
        return self.numel // self.rows if self.rows else 0


class Method:
    """Serves the items it was made for. `order` of items is the order inside the bucket."""

    def __init__(self, items: Sequence[Item], ranks: int) -> None:
        self.items = list(items)
        self.ranks = ranks

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        """grads[r][name] in float32, any shape. Returns the result that the optimizer of every rank gets, shaped like the gradient."""
        raise NotImplementedError

    def kept(self, rank: int) -> Gradients:
        """Gradient mass that this rank has taken in and not sent; empty if nothing is kept."""
        del rank
        return {}

    def zeros(self) -> list[Gradients]:
        """Flat float32 state for every rank and item."""
        return [{item.name: torch.zeros(item.numel) for item in self.items} for _ in range(self.ranks)]


class Scheme:
    """The methods of one run. Each gradient has exactly one method."""

    def __init__(self, methods: Sequence[Method]) -> None:
        self.methods = list(methods)
        self.steps = 0

    def step(self, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        """One training step of all ranks. Dictionaries may hold more names than one method serves."""
        update: Gradients = {}
        for method in self.methods:
            update.update(method.step(self.steps, grads))
        self.steps += 1
        return update

    def kept(self, rank: int) -> Gradients:
        merged: Gradients = {}
        for method in self.methods:
            merged.update(method.kept(rank))
        return merged


def ascending_sum(parts: Sequence[torch.Tensor]) -> torch.Tensor:
    """((x_0 + x_1) + x_2) + ... in float32: the order that `deterministic` promises."""
    total = parts[0].to(torch.float32).clone()
    for part in parts[1:]:
        total += part.to(torch.float32)
    return total


def kept_count(numel: int, density: float) -> int:
    """k = clamp(ceil(n * density), 1, n); the small term keeps 700 * 0.01 at 7 in spite of binary fractions."""
    return min(numel, max(1, math.ceil(density * numel - 1e-9)))


def largest(values: torch.Tensor, k: int) -> torch.Tensor:
    """Ascending positions of the k entries of largest magnitude; between equal magnitudes the lower position wins."""
    magnitude = values.abs()
    if k >= magnitude.numel():
        return torch.arange(magnitude.numel())
    threshold = torch.topk(magnitude, k, sorted=True).values[-1]
    above = torch.nonzero(magnitude > threshold).flatten()
    equal = torch.nonzero(magnitude == threshold).flatten()[: k - above.numel()]
    return torch.cat([above, equal]).sort().values
