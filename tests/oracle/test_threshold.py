"""The threshold oracles against hand-made cases, conservation and the promised numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from .method import Item, Method, kept_count
from .test_oracle import ITEMS, RANKS, gradients
from .threshold import AdaComp, AdaQ, FixedThreshold, GaussianK, RedSync, Sidco, Steered

Make = Callable[[Sequence[Item], int], Method]

METHODS: dict[str, Make] = {
    "threshold": lambda i, p: FixedThreshold(i, p, 1.5),
    "gaussiank": lambda i, p: GaussianK(i, p, 0.05),
    "redsync": lambda i, p: RedSync(i, p, 0.05),
    "redsync trimmed": lambda i, p: RedSync(i, p, 0.05, search="trimmed"),
    "redsync quantised": lambda i, p: RedSync(i, p, 0.05, quantised=True),
    "sidco": lambda i, p: Sidco(i, p, 0.05),
    "sidco pareto": lambda i, p: Sidco(i, p, 0.02, law="pareto", stages=2),
    "adaq": lambda i, p: AdaQ(i, p, 0.05),
    "adacomp": lambda i, p: AdaComp(i, p),
}


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_lost(name: str) -> None:
    method = METHODS[name](ITEMS, RANKS)
    given = {item.name: torch.zeros(item.numel) for item in ITEMS}
    taken = {item.name: torch.zeros(item.numel) for item in ITEMS}
    for step in range(20):
        grads = gradients(step)
        for name_, update in method.step(step, grads).items():
            taken[name_] += RANKS * update.reshape(-1)
            given[name_] += sum(g[name_].reshape(-1) for g in grads)
    for item in ITEMS:
        kept = sum(method.kept(rank)[item.name] for rank in range(RANKS))
        assert torch.allclose(kept + taken[item.name], given[item.name], atol=1e-3), item.name


@pytest.mark.parametrize("name", ["gaussiank", "redsync", "redsync trimmed", "sidco", "sidco pareto"])
def test_the_number_sent_is_within_a_tenth_for_any_law(name: str) -> None:
    item = Item("weight", 0, (20_000,))
    generator = torch.Generator().manual_seed(3)
    for draw in (torch.Tensor.normal_, torch.Tensor.cauchy_, torch.Tensor.exponential_):
        method = METHODS[name]([item], 1)
        assert isinstance(method, Steered)
        k = kept_count(item.numel, method.density)
        for step in range(10):
            update = method.step(step, [{"weight": draw(torch.empty(20_000), generator=generator)}])["weight"]
            assert abs(int((update != 0).sum()) - k) <= k // 10


def test_adacomp_sends_what_stands_out_in_its_bin() -> None:
    method = AdaComp([Item("g", 0, (10,))], 1, bin_length=4)
    update = method.step(0, [{"g": torch.tensor([4.0, -8, 1, 5, 0, 0, 0, 0, 2, -1])}])["g"]
    scale = 10 / 3
    assert torch.allclose(update, torch.tensor([scale, -scale, 0, scale, 0, 0, 0, 0, scale, -scale]))


def test_adaq_sends_one_mean_for_each_sign() -> None:
    method = AdaQ([Item("g", 0, (8,))], 1, density=0.5)
    update = method.step(0, [{"g": torch.tensor([4.0, -8, 2, -1, 6, 0, 1, -4])}])["g"]
    assert update.tolist() == [5, -6, 0, 0, 5, 0, 0, -6]
