"""Ok-Topk (Li and Hoefler, PPoPP 2022): top-k payloads, summed by region owners, and only the largest sums survive.

For one bucket, positions counted over its concatenated items:

    x_r = e_r + g_r;  S_r = the entries that top-k sends (density d, K = number of entries at capacity)
    s   = sum_r S_r, added by the owner of each region in ascending rank order
    theta, every `threshold_period` steps: the K-th largest |s| > 0, exactly; the result keeps exactly those K entries
    otherwise: the result keeps |s| >= theta; then theta /= adjust if fewer than 2K/3 were kept, *= adjust above 4K/3;
    theta is computed exactly in the next step, too, after more than 2K were kept or while it is 0
    update = (1/P) s[kept]
    e_r = x_r - S_r[kept]: entries that the owner refused go back to their sender

With K >= number of elements nothing is refused. Regions decide which rank adds an entry, and so the traffic, but
never the result. They are simulated to show how the load is spread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch

from .method import Gradients, Item, largest
from .top_k import TopK, concatenated, separated


def equal_count_splits(positions: torch.Tensor, ranks: int, numel: int) -> list[int]:
    """The P-1 positions that cut an ascending list into P parts of equal count. An empty list is cut evenly."""
    count = positions.numel()
    if count == 0:
        return [numel * part // ranks for part in range(1, ranks)]
    return [int(positions[min(count - 1, count * part // ranks)]) for part in range(1, ranks)]


class OkTopK(TopK):
    """`threshold_period` is tau', `boundary_period` tau of the paper."""

    def __init__(
        self,
        items: Sequence[Item],
        ranks: int,
        density: float,
        scope: str = "item",
        threshold_period: int = 32,
        boundary_period: int = 64,
        adjust: float = 1.025,
        value_type: str = "fp32",
    ) -> None:
        super().__init__(items, ranks, density, scope, "fp32" if value_type == "auto" else value_type)
        self.threshold_period = threshold_period
        self.boundary_period = boundary_period
        self.adjust = np.float32(adjust)
        self.theta = np.float32(0.0)
        self.boundaries: list[int] = []
        self.numel = sum(item.numel for item in self.items)

    def region_counts(self, sent: torch.Tensor) -> list[int]:
        """Entries of one rank's payload that go to each owner."""
        edges = [0, *self.boundaries, self.numel]
        return [int(torch.count_nonzero(sent[a:b])) for a, b in zip(edges, edges[1:])]

    def _survivors(self, step: int, total: torch.Tensor) -> torch.Tensor:
        """Mask of the sums that the owners keep. Updates theta."""
        nonzero = total != 0
        if self.capacity >= self.numel or self.ranks == 1:  # one rank exchanges nothing, so nothing is refused
            return nonzero
        if step % self.threshold_period == 0 or self.theta == 0:
            if int(nonzero.sum()) <= self.capacity:
                self.theta = np.float32(total[nonzero].abs().min()) if bool(nonzero.any()) else np.float32(0.0)
                return nonzero
            chosen = largest(total, self.capacity)
            self.theta = np.float32(total[chosen].abs().min())
            mask = torch.zeros_like(nonzero)
            mask[chosen] = True
            return mask
        mask = nonzero & (total.abs() >= float(self.theta))
        count = int(mask.sum())
        if 3 * count < 2 * self.capacity:
            self.theta = np.float32(self.theta / self.adjust)
        elif count > 2 * self.capacity:
            self.theta = np.float32(0.0)
        elif 3 * count > 4 * self.capacity:
            self.theta = np.float32(self.theta * self.adjust)
        return mask

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        sent = [concatenated(self.items, self.send(rank, grads[rank])) for rank in range(self.ranks)]
        if step % self.boundary_period == 0:
            cuts = [equal_count_splits(torch.nonzero(s).flatten(), self.ranks, self.numel) for s in sent]
            self.boundaries = [sum(column) // self.ranks for column in zip(*cuts)]
        total = torch.zeros(self.numel)
        for part in sent:
            total += part
        mask = self._survivors(step, total)
        for rank, part in enumerate(sent):
            for name, refused in separated(self.items, torch.where(mask, 0.0, part)).items():
                self.residual[rank][name] += refused
        update = separated(self.items, torch.where(mask, total, 0.0) / self.ranks)
        return {item.name: update[item.name].reshape(item.shape) for item in self.items}
