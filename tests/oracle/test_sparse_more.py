"""The simulations of sparse_more.py against hand-made cases and conservation laws."""

from __future__ import annotations

import pytest
import torch

from .cases import ITEMS, RANKS, expect_nothing_lost, gradients
from .dense import DenseMean
from .method import Item
from .schemes import make_scheme
from .sparse_more import AdTopK, AlternatingPowerSgd, ArcTopK, ChunkTopK, Covap, RandomK, drawn_positions

KEEPING = {
    "random-k": lambda: RandomK(ITEMS, RANKS, True, 0.1),
    "covap": lambda: Covap(ITEMS, RANKS, True),
    "chunks": lambda: ChunkTopK(ITEMS, RANKS, True, 0.1, 8),
    "rows": lambda: ArcTopK(ITEMS, RANKS, True, 0.1),
    "adtopk plain": lambda: AdTopK(ITEMS, RANKS, True, 0.1, "plain"),
    "adtopk interleaved": lambda: AdTopK(ITEMS, RANKS, True, 0.1),
    "adtopk threshold": lambda: AdTopK(ITEMS, RANKS, True, 0.1, "threshold", 5),
    "alternating": lambda: AlternatingPowerSgd(ITEMS, RANKS, 2),
}


@pytest.mark.parametrize("name", KEEPING)
def test_mass_is_conserved_over_a_hundred_steps(name: str) -> None:
    expect_nothing_lost(KEEPING[name]())


def test_density_one_is_the_dense_mean() -> None:
    wholes = (RandomK(ITEMS, RANKS, False, 1.0), ChunkTopK(ITEMS, RANKS, True, 1.0, 7), ArcTopK(ITEMS, RANKS, True, 1.0))
    for method in (*wholes, AdTopK(ITEMS, RANKS, True, 1.0), Covap(ITEMS, RANKS, True, 1)):
        dense = DenseMean(ITEMS, RANKS)
        for step in range(2):
            ours, expected = method.step(step, gradients(step)), dense.step(step, gradients(step))
            assert all(torch.equal(ours[i.name], expected[i.name]) for i in ITEMS)


def test_drawn_positions_are_distinct_and_equally_likely() -> None:
    hits = torch.zeros(31)
    for step in range(1000):
        positions = drawn_positions(31, 7, 1, 0, step)
        assert positions.unique().numel() == 7
        hits[positions] += 1
    # A share p has the standard deviation sqrt(p (1 - p) / 1000). Five of these.
    assert float((hits / 1000 - 7 / 31).abs().max()) < 5 * (7 / 31 * 24 / 31 / 1000) ** 0.5


def test_chunks_are_chosen_by_all_ranks_together_and_ties_go_to_the_lower() -> None:
    item = [Item("w", 0, (6,))]
    grads = [{"w": torch.tensor([5.0, 0, 2, -2, 0, 0])}, {"w": torch.tensor([0, 0, 2.0, 2, 0, 5])}]
    assert ChunkTopK(item, 2, True, 0.3, 2).step(0, grads)["w"].tolist() == [0, 0, 2, 0, 0, 0]
    ones = [{"w": torch.ones(6)}]
    assert ChunkTopK(item, 1, True, 0.3, 2).step(0, ones)["w"].tolist() == [1, 1, 0, 0, 0, 0]


def test_rows_are_chosen_by_all_ranks_together_and_anew_in_every_step() -> None:
    item = [Item("w", 0, (3, 20))]
    grads = [{"w": torch.tensor(rows).reshape(3, 1).expand(3, 20)} for rows in ([5.0, 2, 1], [-5.0, 2, -4])]
    assert ArcTopK(item, 2, True).step(0, grads)["w"][:, 0].tolist() == [0, 2, 0], "the first rows cancel"
    ends = torch.zeros(2, 40)
    ends[0, 3] = ends[1, 17] = 1.0
    method = ArcTopK([Item("w", 0, (2, 40))], 1, False, rank=2)
    assert {float(method.step(step, [{"w": ends}])["w"][0, 3]) for step in range(40)} == {0.0, 1.0}


def test_rows_go_only_where_that_is_less() -> None:
    shapes = {(40, 33): False, (40,): True, (1, 40): True, (40, 1): True, (40, 4): True, (40, 5): False, (0, 5): True}
    method = ArcTopK(ITEMS, RANKS, True)
    assert {shape: method.whole(Item("w", 0, shape)) for shape in shapes} == shapes


def test_covap_sends_slice_after_slice_and_a_decayed_residual_with_it() -> None:
    items = [Item("v", 0, (5,)), Item("w", 1, (1,)), Item("empty", 2, (0,))]
    method = Covap(items, 1, True, 2, beta=0.5)
    grads = [{"v": torch.ones(5), "w": torch.ones(1), "empty": torch.ones(0)}]
    seen = [method.step(step, grads) for step in range(3)]
    assert [update["v"].tolist() for update in seen] == [[1, 1, 1, 0, 0], [0, 0, 0, 1.5, 1.5], [1.5, 1.5, 1.5, 0, 0]]
    assert [update["w"].tolist() for update in seen] == [[1]] * 3


def test_covap_takes_the_growth_of_its_feedback_from_switches() -> None:
    switches = [{"at_step": at_step, "set": {"memory": {"residual": {"beta": beta}}}} for at_step, beta in ((0, 0.5), (2, 1.0))]
    scheme = make_scheme({"scheme": {"compressor": "covap", "memory": "residual"}, "switch": switches}, [Item("v", 0, (4,))], 1)
    seen = [float(scheme.step([{"v": torch.ones(4)}])["v"].sum()) for _ in range(5)]
    assert seen == [1, 1.5, 2.5, 3.5, 4]


def test_adtopk_takes_the_largest_of_every_row_and_of_every_place_of_a_window() -> None:
    matrix = [Item("w", 0, (2, 3))]
    grads = [{"w": torch.tensor([[1.0, -9, 2], [0.1, 0.1, 0.05]])}]
    assert AdTopK(matrix, 1, True, 0.3).step(0, grads)["w"].tolist() == [[0, -9, 0], [torch.tensor(0.1).item(), 0, 0]]
    window = [Item("w", 0, (1, 2, 1, 2))]
    grads = [{"w": torch.tensor([[[[1.0, 5]], [[2, 4]]]])}]
    assert AdTopK(window, 1, True, 0.5).step(0, grads)["w"].tolist() == [[[[0, 5]], [[2, 0]]]]


def test_alternating_counts_half_of_the_factors() -> None:
    method = AlternatingPowerSgd([Item("a", 0, (8, 8)), Item("b", 1, (9, 9))], 1)
    assert [item.name for item in method.factored] == ["b"]


def test_scheme_files_become_the_methods_they_name() -> None:
    for plugin, kind in (("randomk", RandomK), ("chunktopk", ChunkTopK), ("arctopk", ArcTopK), ("adtopk", AdTopK), ("covap", Covap)):
        scheme = make_scheme({"scheme": {"compressor": plugin, "memory": "residual"}}, ITEMS, RANKS)
        assert isinstance(scheme.methods[0], kind) and scheme.methods[0].keeps
    scheme = make_scheme({"scheme": {"compressor": "powersgd-alternating", "memory": "residual"}}, ITEMS, RANKS)
    assert isinstance(scheme.methods[0], AlternatingPowerSgd)
    with pytest.raises(ValueError, match="not simulate"):
        make_scheme({"scheme": {"compressor": "adtopk", "memory": "dgc"}}, ITEMS, RANKS)
