"""The quantising methods against hand-made cases, their expectations and conservation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from .cases import ITEMS, RANKS, expect_nothing_lost
from .method import Item
from .quantised import Draw, Quantised, Send, Signum, cast, ef_sign, natural, one_bit, qsgd, tern_grad
from .random import GOLDEN, MASK, splitmix64

SENDS: dict[str, Send] = {
    "efsign": ef_sign,
    "onebit": one_bit(),
    "onebit in buckets": one_bit(64),
    "qsgd of 8 bits": qsgd(8),
    "qsgd by maximum": qsgd(8, 0, "max"),
    "natural": natural,
    "fp16 by chance": cast(torch.float16, "stochastic"),
    "bf16 by chance": cast(torch.bfloat16, "stochastic"),
}


def test_words_follow_the_formula_element_by_element() -> None:
    drawn = Draw(7, 3, 5, 2).words(50)
    base = splitmix64(7 ^ splitmix64((3 * GOLDEN + 4 + 16 * 6) & MASK))
    k = splitmix64(splitmix64((base + 2 * GOLDEN) & MASK))
    for element in range(50):
        x = (element + k) % 2**32
        x = (x ^ (x >> 16)) * 0x7FEB352D % 2**32
        x ^= k >> 32
        x = (x ^ (x >> 15)) * 0x846CA68B % 2**32
        assert int(drawn[element]) == x ^ (x >> 16)


def test_sent_values_follow_the_definitions() -> None:
    x = torch.tensor([3.0, -1.0, 0.0, 0.0])
    draw = Draw(1, 0, 0, 0)
    assert ef_sign(x, draw).tolist() == [1.0, -1.0, 0.0, 0.0]
    assert one_bit()(torch.tensor([3.0, 1.0, -5.0, 0.0]), draw).tolist() == [2.0, 2.0, -5.0, 0.0]
    assert qsgd(8, 0, "max")(torch.tensor([127.0, -3.0, 0.0]), draw).tolist() == [127.0, -3.0, 0.0]
    assert tern_grad()(torch.tensor([-0.5, -0.5]), draw).tolist() == [-0.5, -0.5]
    powers = torch.tensor([1.0, -0.25, 0.0, 2.0**100])
    assert torch.equal(natural(powers, draw), powers)
    # 3 = 2 (1 + 1/2): up where the highest of the bits is 1.
    up = draw.words(50) >> 31 == 1
    assert torch.equal(natural(torch.full((50,), 3.0), draw), torch.where(up, 4.0, 2.0))


@pytest.mark.parametrize("name", ["qsgd", "qsgd by maximum", "natural", "terngrad", "fp16 by chance", "bf16 by chance"])
def test_expectations_are_the_input(name: str) -> None:
    send = {"qsgd": qsgd(), "terngrad": tern_grad(0.0)}.get(name) or SENDS[name]
    x = torch.randn(200, generator=torch.Generator().manual_seed(3))
    draws = torch.stack([send(x, Draw(1, 0, step, 0)).double() for step in range(2000)])
    # 5.5 standard deviations of the mean of the drawn values: one in 20 million per element. An element that is nearly a
    # power of two is drawn away from it a few times at most, so its deviation counts as that of four such draws at least.
    deviation = draws.std(0).clamp(min=2 * x.abs().double() / np.sqrt(2000))
    assert bool(((draws.mean(0) - x).abs() <= 5.5 * deviation / np.sqrt(2000) + 1e-5).all())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_casts_by_chance_give_a_neighbour_and_leave_numbers_of_the_type_alone(dtype: torch.dtype) -> None:
    x = torch.randn(500, generator=torch.Generator().manual_seed(4)) * 10.0 ** torch.linspace(-9, 4, 500)
    sent = cast(dtype, "stochastic")(x, Draw(1, 0, 0, 0))
    assert torch.equal(sent.to(dtype).float(), sent)
    smallest = float(torch.finfo(dtype).smallest_normal) * torch.finfo(dtype).eps
    assert bool(((sent - x).abs() <= x.abs() * torch.finfo(dtype).eps + smallest).all())
    assert not torch.equal(sent, x.to(dtype).float()), "some numbers go to the neighbour that is farther away"
    exact = torch.cat([sent, torch.tensor([0.0, -0.0, float("inf"), torch.finfo(dtype).max])])
    assert torch.equal(cast(dtype, "stochastic")(exact, Draw(1, 0, 1, 0)), exact)


# Of the unbiased methods, only methods whose rounding error is smaller than the input. With other methods a residual
# grows without bound.
@pytest.mark.parametrize("name", SENDS)
def test_mass_is_conserved_over_a_hundred_steps(name: str) -> None:
    expect_nothing_lost(Quantised(ITEMS, RANKS, True, SENDS[name]))


def test_signum_votes_over_momenta() -> None:
    item = [Item("w", 0, (3,))]
    method = Signum(item, 2, momentum=0.5)
    grads = [{"w": torch.tensor([4.0, 1.0, 0.0])}, {"w": torch.tensor([1.0, -1.0, 0.0])}]
    assert method.step(0, grads)["w"].tolist() == [1.0, 0.0, 0.0]
    grads = [{"w": torch.tensor([-1.0, 1.0, 0.0])}, {"w": torch.tensor([1.0, 2.0, -1.0])}]
    assert method.step(1, grads)["w"].tolist() == [1.0, 1.0, -1.0]  # the first rank's momentum is still positive
