"""Narrow values: their decoded values, and the rounding error is not lost."""

from __future__ import annotations

import pytest
import torch

from .cases import ITEMS, RANKS, expect_nothing_lost, gradients
from .dgc import Dgc, DgcOptions
from .low_rank import AcpSgd, PowerSgd
from .method import Item
from .ok_topk import OkTopK
from .schemes import make_scheme
from .sparse_more import AdTopK, AlternatingPowerSgd, ChunkTopK, RandomK
from .threshold import FixedThreshold, GaussianK, RedSync, Sidco
from .top_k import TopK
from .values import narrowed

NARROW = ("fp16", "bf16", "int8")
METHODS = {
    "top-k": lambda kind: TopK(ITEMS, RANKS, 0.1, value_type=kind),
    "ok-topk": lambda kind: OkTopK(ITEMS, RANKS, 0.1, value_type=kind),
    "dgc": lambda kind: Dgc(ITEMS, RANKS, DgcOptions(density=0.1, momentum=0.0, value_type=kind)),
    "adtopk": lambda kind: AdTopK(ITEMS, RANKS, True, 0.1, value_type=kind),
    "threshold": lambda kind: FixedThreshold(ITEMS, RANKS, 1.5, value_type=kind),
    "gaussiank": lambda kind: GaussianK(ITEMS, RANKS, 0.1, value_type=kind),
    "redsync": lambda kind: RedSync(ITEMS, RANKS, 0.1, value_type=kind),
    "sidco": lambda kind: Sidco(ITEMS, RANKS, 0.1, value_type=kind),
}


def test_values_are_rounded_to_even_and_cut_at_the_largest_number() -> None:
    values = torch.tensor([1.0 + 2.0**-11, 1.0 + 3 * 2.0**-11, 1e6, -1e6])
    assert narrowed(values, "fp16", summed=True).tolist() == [1.0, 1.0 + 2.0**-9, 65504.0, -65504.0]
    assert narrowed(torch.tensor([1.0 + 2.0**-8, 3.0]), "bf16").tolist() == [1.0, 3.0]
    assert narrowed(torch.tensor([127.0, 0.5, 1.5, -2.6]), "int8").tolist() == [127.0, 0.0, 2.0, -3.0]
    assert narrowed(torch.zeros(3), "int8").tolist() == [0.0] * 3


def test_halves_have_a_power_of_two_of_their_payload() -> None:
    values = torch.tensor([1.0, 0.3, -(2.0**-9), 0.0])
    for exponent in (-100, -40, 0, 40, 127):
        scaled = narrowed(values * 2.0**exponent, "fp16")
        assert (scaled / 2.0**exponent).tolist() == narrowed(values, "fp16").tolist()
        assert bool((scaled - values * 2.0**exponent).abs().max() < 2.0 ** (exponent - 12))
    most = torch.tensor([torch.finfo(torch.float32).max])
    assert narrowed(most, "fp16").tolist() == [65504 * 2.0**112]


@pytest.mark.parametrize("kind", NARROW)
@pytest.mark.parametrize("name", METHODS)
def test_what_rounding_leaves_over_stays(name: str, kind: str) -> None:
    expect_nothing_lost(METHODS[name](kind), 20)
    wide, narrow = METHODS[name]("fp32").step(0, gradients(0)), METHODS[name](kind).step(0, gradients(0))
    gap = max(float((wide[i.name] - narrow[i.name]).abs().max()) for i in ITEMS)
    assert gap > 0.0
    if name != "ok-topk":  # ok-topk then also drops other sums
        assert gap < 0.05, "values of size 4: a half unit in the last place of 8 bits, from four ranks"


def test_signs_stand_for_the_mean_of_their_sign() -> None:
    assert narrowed(torch.tensor([1.0, -4.0, 3.0, 0.0, -2.0]), "sign").tolist() == [2.0, -3.0, 2.0, 0.0, -3.0]
    assert narrowed(torch.tensor([-1.0, -2.0]), "sign").tolist() == [-1.5, -1.5]
    assert narrowed(torch.zeros(2), "sign").tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", [name for name in METHODS if name != "ok-topk"])
def test_what_a_mean_leaves_over_stays(name: str) -> None:
    expect_nothing_lost(METHODS[name]("sign"), 20)
    for grads in gradients(0):
        sent = METHODS[name]("sign").step(0, [grads] + [{i.name: torch.zeros(i.shape) for i in ITEMS}] * (RANKS - 1))["weight"]
        assert len(sent.unique()) == 3, "a mean of each sign, and 0"


def test_sums_on_the_way_are_rounded_once_more_and_do_not_come_in_bytes() -> None:
    item = [Item("w", 0, (2,))]
    grads = [{"w": torch.full((2,), 1.0)}, {"w": torch.full((2,), 2048.0)}]
    for make in (RandomK, ChunkTopK):
        update = make(item, 2, True, 1.0, value_type="fp16").step(0, grads)["w"]
        assert update.tolist() == [1024.0, 1024.0], "2049 is no half"
        with pytest.raises(ValueError, match="int8"):
            make(item, 2, True, 1.0, value_type="int8")


LOW_RANK = {"power-sgd": PowerSgd, "acp-sgd": AcpSgd, "alternating": AlternatingPowerSgd}


@pytest.mark.parametrize("kind", ("fp16", "bf16"))
@pytest.mark.parametrize("name", LOW_RANK)
def test_what_rounding_a_factor_leaves_over_stays(name: str, kind: str) -> None:
    one_rank = LOW_RANK[name](ITEMS, 1, 2, value_type=kind)
    given = {i.name: torch.zeros(i.shape, dtype=torch.float64) for i in one_rank.factored}
    for step in range(20):
        grads = gradients(step, ranks=1)
        update = one_rank.step(step, grads)
        for item in one_rank.factored:
            given[item.name] += grads[0][item.name].double() - update[item.name].double()
    for item in one_rank.factored:
        gap = given[item.name].reshape(item.rows, item.cols) - one_rank.kept(0)[item.name].double()
        assert float(gap.abs().max()) < 1e-4, "a single rank's sum loses nothing"
    wide, narrow = (LOW_RANK[name](ITEMS, RANKS, 2, value_type=k).step(0, gradients(0)) for k in ("fp32", kind))
    gap = max(float((wide[i.name] - narrow[i.name]).abs().max()) for i in one_rank.factored)
    assert 0.0 < gap < 0.05, "values of size 4: a half unit in the last place of 8 bits, from four ranks and their sum"


def test_factors_do_not_come_in_bytes() -> None:
    for method in LOW_RANK.values():
        with pytest.raises(ValueError, match="int8"):
            method(ITEMS, RANKS, 2, value_type="int8")


def test_scheme_files_say_the_type() -> None:
    for plugin in ("powersgd", "acpsgd", "powersgd-alternating", "topk", "dgc", "adtopk", "threshold", "gaussiank", "redsync", "sidco", "randomk", "chunktopk", "arctopk"):
        table = {"scheme": {"compressor": plugin, "memory": "residual"}, "compressor": {plugin: {"value_type": "fp16"}}}
        if plugin == "dgc":
            table["scheme"]["memory"] = "dgc"
        method = make_scheme(table, ITEMS, RANKS).methods[0]
        assert "fp16" in (getattr(method, "value_type", None), getattr(getattr(method, "options", None), "value_type", None))
        table["compressor"][plugin]["value_type"] = "fp8"
        with pytest.raises(ValueError, match="fp8"):
            make_scheme(table, ITEMS, RANKS)
