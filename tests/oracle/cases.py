"""Shared by the tests of the simulations: items, gradients, and the check that nothing is lost."""

from __future__ import annotations

import torch

from .method import Item, Method

RANKS = 4
ITEMS = [
    Item("weight", 0, (40, 33)),
    Item("bias", 1, (40,)),
    Item("kernel", 2, (8, 3, 5, 5)),
    Item("one", 3, (1,)),
]


def gradients(step: int, ranks: int = RANKS) -> list[dict[str, torch.Tensor]]:
    """Gradients of all ranks at one step, equal in every run."""
    generator = torch.Generator().manual_seed(1000 + step)
    return [{i.name: torch.randn(i.shape, generator=generator) for i in ITEMS} for _ in range(ranks)]


def expect_nothing_lost(method: Method, steps: int = 100) -> None:
    """The sum of all gradients of ITEMS on RANKS equals the sent values plus the kept values."""
    balance = {i.name: torch.zeros(i.numel, dtype=torch.float64) for i in ITEMS}
    for step in range(steps):
        grads = gradients(step)
        for name, update in method.step(step, grads).items():
            balance[name] += sum(g[name].reshape(-1).double() for g in grads)
            balance[name] -= RANKS * update.reshape(-1).double()
    for item in ITEMS:
        nothing = torch.zeros(item.numel)
        kept = sum(method.kept(rank).get(item.name, nothing).reshape(-1).double() for rank in range(RANKS))
        gap = float((balance[item.name] - kept).abs().max())
        assert gap < 2e-3, f"{item.name}: {gap}"  # 100 steps of float32 sums of a few hundred
