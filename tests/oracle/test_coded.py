"""The oracles of quantised methods against their definitions: conservation, bounds, unbiasedness."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
import torch

from .cases import ITEMS, RANKS, expect_nothing_lost
from .method import Item, Method
from .coded import Inceptionn, Int8, MaxMin, Sketch, Tbq, dynamic_tree, uniform

Make = Callable[[Sequence[Item], int], Method]

METHODS: dict[str, Make] = {
    "maxmin": lambda i, p: MaxMin(i, p, True),
    "maxmin nearest": lambda i, p: MaxMin(i, p, True, 3, 64, "nearest"),
    "int8": lambda i, p: Int8(i, p, True),
    "tbq": lambda i, p: Tbq(i, p, True, 0.5),
    "inceptionn": lambda i, p: Inceptionn(i, p, True),
    "sketch": lambda i, p: Sketch(i, p, 0.01, 3, 10),
}


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_lost(name: str) -> None:
    expect_nothing_lost(METHODS[name](ITEMS, RANKS), 20)


def test_the_tree_has_256_numbers_and_is_odd_but_for_one() -> None:
    values = dynamic_tree()
    assert values.numel() == 256 and values[127] == 0 and values[255] == 1
    assert torch.equal(values[:127], -values[128:255].flip(0))


def test_stochastic_rounding_is_right_on_average() -> None:
    item = Item("weight", 0, (400,))
    x = torch.linspace(-1, 1, 400)
    method = MaxMin([item], 1, False, bits=1)
    mean = sum(method.step(step, [{"weight": x}])["weight"] for step in range(2000)) / 2000
    assert (mean - x).abs().max() < 5 * 2 / 2 / 2000**0.5  # five deviations of at most half a step


def test_draws_are_uniform_and_differ_by_rank_and_step() -> None:
    drawn = uniform(1, 0, 0, 0, 100_000)
    assert 0 < drawn.min() and drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 0.005  # five deviations
    assert not torch.equal(drawn, uniform(1, 0, 0, 1, 100_000))
    assert not torch.equal(drawn, uniform(1, 0, 1, 0, 100_000))


def test_inceptionn_stays_below_its_bound() -> None:
    x = torch.randn(10_000, generator=torch.Generator().manual_seed(1)) * 0.3
    sent = Inceptionn([Item("w", 0, (10_000,))], 1, False, 8).quantise(x, Item("w", 0, (10_000,)), 0, 0)
    assert (sent - x).abs().max() < 2.0**-8
    assert torch.equal(sent[x.abs() >= 1], x[x.abs() >= 1])
