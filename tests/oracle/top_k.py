"""Top-k with a residual (Aji and Heafield, EMNLP 2017), over each gradient or over the whole bucket.

    x_r    = e_r + g_r
    I_r    = the k largest |x_r|, ties to the lower position
    update = (1/P) sum_r x_r[I_r]
    e_r    = x_r with x_r[I_r] := 0
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .method import Gradients, Item, Method, kept_count, largest
from .values import checked, resolved, take


def concatenated(items: Sequence[Item], values: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The items of a bucket as one flat tensor, in bucket order."""
    return torch.cat([values[item.name].reshape(-1) for item in items])


def separated(items: Sequence[Item], flat: torch.Tensor) -> Gradients:
    """The reverse: views of `flat`, one per item."""
    parts = torch.split(flat, [item.numel for item in items])
    return {item.name: part for item, part in zip(items, parts)}


class TopK(Method):
    """`scope` is "item" (k of each gradient) or "bucket" (the sum of these k, chosen across all gradients
    of the bucket)."""

    def __init__(
        self, items: Sequence[Item], ranks: int, density: float, scope: str = "item", value_type: str = "fp32"
    ) -> None:
        super().__init__(items, ranks)
        if scope not in ("item", "bucket"):
            raise ValueError(f"scope is {scope!r}, expected 'item' or 'bucket'")
        self.density = density
        self.scope = scope
        self.value_type = checked(value_type)
        self.capacity = sum(kept_count(item.numel, density) for item in self.items)
        self.residual = self.zeros()

    def choose(self, work: Gradients) -> dict[str, torch.Tensor]:
        """The positions of a rank's sent entries within each item, ascending."""
        if self.scope == "item":
            return {i.name: largest(work[i.name], kept_count(i.numel, self.density)) for i in self.items}
        mask = torch.zeros(sum(item.numel for item in self.items), dtype=torch.bool)
        mask[largest(concatenated(self.items, work), self.capacity)] = True
        return {name: torch.nonzero(part).flatten() for name, part in separated(self.items, mask).items()}

    def send(self, rank: int, grads: Mapping[str, torch.Tensor]) -> Gradients:
        """Adds the gradient to the residual, takes the chosen entries out of it and returns them, dense."""
        work = self.residual[rank]
        for item in self.items:
            work[item.name] += grads[item.name].reshape(-1)
        sent: Gradients = {}
        for name, chosen in self.choose(work).items():
            numel = work[name].numel()
            sent[name] = torch.zeros_like(work[name])
            sent[name][chosen] = take(
                work[name], chosen, resolved(self.value_type, kept_count(numel, self.density), numel)
            )
        return sent

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        total = {item.name: torch.zeros(item.numel) for item in self.items}
        for rank in range(self.ranks):
            for name, sent in self.send(rank, grads[rank]).items():
                total[name] += sent
        return {item.name: (total[item.name] / self.ranks).reshape(item.shape) for item in self.items}

    def kept(self, rank: int) -> Gradients:
        return self.residual[rank]
