"""The threshold oracles against hand-made cases, conservation and the promised numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist

import pytest
import torch

from .cases import ITEMS, RANKS, expect_nothing_lost
from .estimators import PAGE, PUBLISHED, draws, published, table
from .method import Item, Method, kept_count
from .threshold import AdaComp, AdaQ, FixedThreshold, GaussianK, RedSync, Sidco, Steered, Steering, gamma_tail_quantile

Make = Callable[[Sequence[Item], int], Method]

METHODS: dict[str, Make] = {
    "threshold": lambda i, p: FixedThreshold(i, p, 1.5),
    "gaussiank": lambda i, p: GaussianK(i, p, 0.05),
    "redsync": lambda i, p: RedSync(i, p, 0.05),
    "redsync trimmed": lambda i, p: RedSync(i, p, 0.05, search="trimmed"),
    "redsync quantised": lambda i, p: RedSync(i, p, 0.05, quantised=True),
    "sidco": lambda i, p: Sidco(i, p, 0.05),
    "sidco pareto": lambda i, p: Sidco(i, p, 0.02, law="pareto", stages=2),
    "sidco gamma": lambda i, p: Sidco(i, p, 0.02, law="gamma_pareto", stages=2),
    "sidco gaussian": lambda i, p: Sidco(i, p, 0.02, law="gaussian"),
    "adaq": lambda i, p: AdaQ(i, p, 0.05),
    "adacomp": lambda i, p: AdaComp(i, p),
}


@pytest.mark.parametrize("name", METHODS)
def test_nothing_is_lost(name: str) -> None:
    expect_nothing_lost(METHODS[name](ITEMS, RANKS), 20)


STEERED = [name for name in METHODS if name.startswith(("gaussiank", "redsync", "sidco")) and "quantised" not in name]


@pytest.mark.parametrize("name", STEERED)
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


def test_gamma_quantiles_are_those_of_known_laws() -> None:
    assert math.isclose(gamma_tail_quantile(1.0, 0.001), math.log(1000))  # exponential
    assert math.isclose(2 * gamma_tail_quantile(0.5, 0.001), NormalDist().inv_cdf(0.9995) ** 2, rel_tol=1e-9)  # z^2


def test_one_stage_of_each_law_finds_the_quantile_of_entries_that_follow_it() -> None:
    generator = torch.Generator().manual_seed(5)
    normal = torch.randn(200_000, generator=generator, dtype=torch.float64)
    uniform = torch.rand(200_000, generator=generator, dtype=torch.float64).clamp(min=1e-12)
    item = Item("g", 0, (200_000,))
    for law, entries, expected, tolerance in (
        ("exponential", -2 * uniform.log(), 2 * math.log(1000), 0.2),
        ("pareto", (uniform**-0.1 - 1) / 0.1, (0.001**-0.1 - 1) / 0.1, 0.3),
        ("gamma_pareto", normal.square(), 10.828, 0.2),
        # The law takes mean and deviation of |z| as mean and deviation of z: m + z(0.0005) sqrt(1 - m^2), m = sqrt(2 /
        # pi).
        ("gaussian", normal, 0.79788 + 3.29053 * 0.60281, 0.02),
    ):
        method = Sidco([item], 1, law=law, stages=1)
        assert abs(method.estimate(Steering(), entries.float()) - expected) < tolerance, law


def test_adacomp_sends_what_stands_out_in_its_bin() -> None:
    method = AdaComp([Item("g", 0, (10,))], 1, bin_length=4)
    update = method.step(0, [{"g": torch.tensor([4.0, -8, 1, 5, 0, 0, 0, 0, 2, -1])}])["g"]
    scale = 10 / 3
    assert torch.allclose(update, torch.tensor([scale, -scale, 0, scale, 0, 0, 0, 0, scale, -scale]))


def test_adaq_sends_one_mean_for_each_sign() -> None:
    method = AdaQ([Item("g", 0, (8,))], 1, density=0.5)
    update = method.step(0, [{"g": torch.tensor([4.0, -8, 2, -1, 6, 0, 1, -4])}])["g"]
    assert update.tolist() == [5, -6, 0, 0, 5, 0, 0, -6]


def test_the_released_gaussian_fit_counts_three_times_and_sends_what_it_counted_last() -> None:
    x = draws("Laplace", torch.Generator().manual_seed(0))
    begin = float(x.mean()) + NormalDist().inv_cdf(0.995) * float(x.std())
    k = kept_count(x.numel(), 0.01)
    counts = [int((x.abs() > begin * factor).sum()) / k for factor in (1.0, 1.5, 0.75)]
    assert counts[0] > 4 / 3 and counts[1] < 2 / 3, "too many, then too few"
    assert PUBLISHED["Gaussian-k"](x, 0.01) / k == counts[2] > 6


def test_the_page_has_what_the_command_computes_of_the_published_estimates() -> None:
    torch.set_num_threads(1)
    densities = ["0.01", "0.001"]
    rows = table(published(densities), densities).splitlines()
    page = PAGE.read_text(encoding="utf-8").splitlines()
    assert [row for row in rows if row not in page] == []
