"""Methods that compress differences from a shift. Every rank adds the values that it sends to its shift.

EF21-SGDM (Fatkhullin, Tyurin, Richtarik, NeurIPS 2023); EF21 where zeta is 1:

    v_r = (1 - zeta) v_r + zeta g_r;  c_r = C(v_r - t_r);  t_r += c_r;  G += (1/P) sum_r c_r;  update = G

DIANA (Mishchenko, Gorbunov, Takac, Richtarik, 2019):

    m_r = C(g_r - h_r);  h_r += alpha m_r;  update = H + (1/P) sum_r m_r;  H += alpha (1/P) sum_r m_r
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from .method import Gradients, Item, Method, ascending_sum, kept_count, largest
from .quantised import Draw, Send

Compress = Callable[[torch.Tensor, Item, int, int], torch.Tensor]  # flat values, item, step, rank -> the sent values, decoded


def by_top_k(density: float = 0.01) -> Compress:
    """The largest entries, unchanged."""

    def compress(x: torch.Tensor, item: Item, step: int, rank: int) -> torch.Tensor:
        del item, step, rank
        sent = torch.zeros_like(x)
        chosen = largest(x, kept_count(x.numel(), density))
        sent[chosen] = x[chosen]
        return sent

    return compress


def by_chance(send: Send, seed: int) -> Compress:
    """A method of quantised.py."""
    return lambda x, item, step, rank: send(x, Draw(seed, item.index, step, item.sender(rank), item.first))


class Shifted(Method):
    """The common base: a shift for every rank."""

    def __init__(self, items: Sequence[Item], ranks: int, compress: Compress) -> None:
        super().__init__(items, ranks)
        self.compress = compress
        self.shift = self.zeros()
        self.mean = {item.name: torch.zeros(item.numel) for item in self.items}  # of all shifts

    def sent(self, step: int, item: Item, wanted: Sequence[torch.Tensor], share: float) -> torch.Tensor:
        """The mean over ranks of the values sent for `wanted`, flat. Adds a share of them to the shifts and to their mean."""
        parts = []
        for rank in range(self.ranks):
            shift = self.shift[rank][item.name]
            parts.append(self.compress(wanted[rank] - shift, item, step, rank))
            shift += share * parts[-1]
        mean = ascending_sum(parts) / self.ranks
        self.mean[item.name] += share * mean
        return mean


class Ef21(Shifted):
    """The optimizer gets the mean of the shifts."""

    def __init__(self, items: Sequence[Item], ranks: int, compress: Compress, zeta: float = 1.0) -> None:
        super().__init__(items, ranks, compress)
        self.zeta = zeta
        self.average = self.zeros()

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            for rank in range(self.ranks):
                average = self.average[rank][item.name]
                average.mul_(1.0 - self.zeta).add_(self.zeta * grads[rank][item.name].reshape(-1))
            self.sent(step, item, [average[item.name] for average in self.average], 1.0)
            update[item.name] = self.mean[item.name].clone().reshape(item.shape)
        return update


class Diana(Shifted):
    """The optimizer gets the mean of the shifts before their change plus the mean of the sent values."""

    def __init__(self, items: Sequence[Item], ranks: int, compress: Compress, alpha: float = 0.1) -> None:
        super().__init__(items, ranks, compress)
        self.alpha = alpha

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            before = self.mean[item.name].clone()
            wanted = [grads[rank][item.name].reshape(-1) for rank in range(self.ranks)]
            update[item.name] = (before + self.sent(step, item, wanted, self.alpha)).reshape(item.shape)
        return update
