"""Dense schemes: the plain mean, the mean of rounded values, and the majority vote of signs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .method import Gradients, Item, Method, ascending_sum
from .quantised import Draw, cast


class DenseMean(Method):
    """S-SGD: update = (1/P) sum_r g_r, added in ascending rank order."""

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        return {item.name: ascending_sum([g[item.name] for g in grads]) / self.ranks for item in self.items}


class RoundedMean(Method):
    """fp16 and bf16: update = round((1/P) sum_r cast(g_r)), the sum in float32 in ascending rank order. If sums are needed, as
    for the next leg of a route, they are rounded: update = (1/P) round(sum_r cast(g_r)). `rounding` is that of the casts; sums
    and means are rounded to nearest."""

    def __init__(
        self, items: Sequence[Item], ranks: int, dtype: torch.dtype, rounding: str = "nearest", seed: int = 1, rounds_sums: bool = False
    ) -> None:
        super().__init__(items, ranks)
        self.dtype = dtype
        self.send = cast(dtype, rounding)
        self.seed = seed
        self.rounds_sums = rounds_sums

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        update: Gradients = {}
        for item in self.items:
            draws = [Draw(self.seed, item.index, step, item.sender(rank), item.first) for rank in range(self.ranks)]
            total = ascending_sum([self.send(g[item.name].reshape(-1), draw) for g, draw in zip(grads, draws)])
            if self.rounds_sums:
                mean = total.to(self.dtype).to(torch.float32) / self.ranks
            else:
                mean = (total / self.ranks).to(self.dtype).to(torch.float32)
            update[item.name] = mean.reshape(item.shape)
        return update


class MajorityVote(Method):
    """signSGD with majority vote (Bernstein et al., ICML 2018): update = sign(sum_r sign(g_r)).

    sign(0) = 0 and a tie is 0, so dead parameters stay where they are. The result is final: it is not divided by P.
    """

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        return {item.name: ascending_sum([g[item.name].sign() for g in grads]).sign() for item in self.items}
