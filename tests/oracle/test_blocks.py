"""The simulations of blocks.py against hand-made cases and conservation laws."""

from __future__ import annotations

import pytest
import torch

from .blocks import BlockTopK, Demo, blocks_of, cosines, four_numbers, transformed
from .cases import ITEMS, RANKS, expect_nothing_lost, gradients
from .dense import DenseMean
from .method import Item
from .schemes import make_scheme


@pytest.mark.parametrize("value_type", ["fp32", "int2"])
def test_mass_is_conserved_over_thirty_steps(value_type: str) -> None:
    expect_nothing_lost(BlockTopK(ITEMS, RANKS, k=300, value_type=value_type), steps=30)


def test_every_element_is_the_dense_mean_and_every_coefficient_too() -> None:
    dense = DenseMean(ITEMS, RANKS).step(0, gradients(0))
    blocks = BlockTopK(ITEMS, RANKS, k=4096, value_type="fp32").step(0, gradients(0))
    coefficients = Demo(ITEMS, RANKS, k=4096, sign=False).step(0, gradients(0))
    for item in ITEMS:
        assert torch.equal(blocks[item.name], dense[item.name])
        assert torch.allclose(coefficients[item.name], dense[item.name], atol=1e-6)


def test_blocks_hold_every_element_once() -> None:
    for shape in ((130, 70), (9000,), (5, 6, 7), (67, 1), (1,), (0,)):
        item = Item("w", 0, shape)
        held = [block.reshape(-1) for block in blocks_of(item)]
        assert sorted(torch.cat(held).tolist() if held else []) == list(range(item.numel))


def test_cosines_are_orthonormal_and_come_back() -> None:
    for n in (1, 2, 3, 64):
        assert torch.allclose(cosines(n) @ cosines(n).T, torch.eye(n, dtype=torch.float64), atol=1e-12)
    for shape in ((64, 64), (3, 50), (1, 200)):
        block = torch.randn(shape, dtype=torch.float64)
        assert torch.allclose(transformed(transformed(block), back=True), block, atol=1e-12)


def test_four_numbers_of_one_value_and_of_equal_values_are_the_value() -> None:
    for values in (torch.tensor([3.0]), torch.full((5,), -0.25)):
        assert torch.equal(four_numbers(values), values)
    # s = 0, deviation 2.6, step 3.9: codes 1, 2, 2, 3.
    assert four_numbers(torch.tensor([-3.0, -1.0, 1.0, 3.0])).tolist() == [-3, 0, 0, 3]


def test_demo_sends_one_constant_as_one_coefficient() -> None:
    grads = [{"w": torch.full((8, 8), 2.0)}, {"w": torch.full((8, 8), -1.0)}]
    method = Demo([Item("w", 0, (8, 8))], 2, k=64)
    assert method.step(0, grads)["w"].unique().tolist() == [1]
    assert all(float(method.kept(rank)["w"].abs().max()) < 1e-6 for rank in range(2))


def test_scheme_files_become_the_methods_they_name() -> None:
    for plugin, kind in (("blocktopk", BlockTopK), ("demo", Demo)):
        table = {"scheme": {"compressor": plugin, "memory": "residual"}, "memory": {"residual": {"beta": 0.5}}}
        table["compressor"] = {plugin: {"value_type": "fp32"}}
        scheme = make_scheme(table, ITEMS, RANKS)
        assert type(scheme.methods[0]) is kind and scheme.methods[0].beta == 0.5
    with pytest.raises(ValueError, match="not simulate"):
        make_scheme({"scheme": {"compressor": "demo", "memory": "dgc"}}, ITEMS, RANKS)
