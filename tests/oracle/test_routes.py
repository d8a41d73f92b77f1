"""The simulation of routes with owners against hand-made cases and conservation laws: nothing here needs the runtime."""

from __future__ import annotations

import pytest
import torch

from .dense import DenseMean
from .method import Item, Method
from .routes import Hierarchical, Shard, owners_on, parts
from .schemes import make_scheme

HOSTS = [(0, 0), (0, 1, 1), (0, 0, 1, 1), (0, 0, 0, 1), (0, 1, 2, 2), (0, 1, 0, 1, 0, 1), (0, 0, 1, 1, 2, 2, 3, 3)]
ITEMS = [
    Item("table", 0, (300, 33)),
    Item("bias", 1, (40,)),
    Item("kernel", 2, (8, 3, 5, 5)),
    Item("line", 3, (8200,)),
    Item("one", 4, (1,)),
    Item("none", 5, (0,)),
]


def gradients(step: int, ranks: int) -> list[dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(2000 + step)
    return [{i.name: torch.randn(i.shape, generator=generator) for i in ITEMS} for _ in range(ranks)]


def routed(compressor: str, route: str, hosts: tuple[int, ...], memory: str = "residual", **options: object) -> Method:
    table = {
        "scheme": {"compressor": compressor, "memory": memory, "route": route},
        "compressor": {compressor: options},
        "rule": [{"match": {"elements": 0}, "compressor": "none", "memory": "none"}],
    }
    return make_scheme(table, ITEMS, len(hosts), hosts=hosts)


@pytest.mark.parametrize("owners", [1, 2, 3, 4, 7])
def test_parts_cover_each_gradient_once_with_whole_rows_and_even_loads(owners: int) -> None:
    found = parts(ITEMS, lambda item: 0 if item.name == "kernel" else 1, owners)
    load = [0] * owners
    for item in ITEMS:
        own = [part for part in found if part.gradient is item]
        assert [part.first for part in own] == [sum(p.item.numel for p in own[:n]) for n in range(len(own))]
        assert sum(part.item.numel for part in own) == item.numel
        assert len(own) == (owners if item.name in ("table", "line") else 1)
        for part in own:
            load[part.owner] += part.item.numel
            assert part.item.cols == item.cols, "rows stay whole"
    assert max(load) - min(load) <= 33 + 600, "a row, and the largest that is not cut"


def test_cuts_lie_at_multiples_of_the_alignment_where_rows_are_too_few() -> None:
    wide = Item("wide", 0, (3, 4096))
    cuts = [(part.first, part.item.shape, part.owner) for part in parts([wide], lambda item: 64, 5)]
    # 192 units of 64: the owners 1 to 4 begin after 38, 76, 115 and 153 units.
    assert cuts == [(64 * n, (64 * (m - n),), owner) for owner, (n, m) in enumerate([(0, 38), (38, 76), (76, 115), (115, 153), (153, 192)])]


def test_what_is_not_cut_goes_to_the_owner_with_least_the_largest_first() -> None:
    items = [Item(name, index, (size,)) for index, (name, size) in enumerate([("a", 5), ("b", 9), ("c", 9), ("d", 4), ("e", 3)])]
    owner_of = {part.gradient.name: part.owner for part in parts(items, lambda item: 1, 2)}
    assert owner_of == {"b": 0, "c": 1, "a": 0, "d": 1, "e": 1}


def test_owners_are_as_many_as_the_smallest_host_has_ranks() -> None:
    assert [owners_on("hierarchical", hosts) for hosts in HOSTS] == [2, 1, 2, 1, 1, 3, 2]
    assert [owners_on("shard", hosts) for hosts in HOSTS] == [2, 3, 4, 4, 4, 6, 8]


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("route", ["hierarchical", "shard"])
def test_at_density_one_it_is_the_dense_mean(route: str, hosts: tuple[int, ...]) -> None:
    dense, method = DenseMean(ITEMS, len(hosts)), routed("topk", route, hosts, density=1.0)
    for step in range(3):
        grads = gradients(step, len(hosts))
        expected, found = dense.step(step, grads), method.step(grads)
        # Sums of at most eight numbers of size one, in another order.
        assert all(torch.allclose(found[i.name], expected[i.name], atol=2e-6) for i in ITEMS)


@pytest.mark.parametrize("hosts", HOSTS)
@pytest.mark.parametrize("route", ["hierarchical", "shard"])
@pytest.mark.parametrize("compressor, options", [("topk", {"density": 0.05}), ("efsign", {}), ("powersgd", {"rank": 2})])
def test_what_ranks_and_owners_keep_and_what_came_out_is_all_that_went_in(
    compressor: str, options: dict, route: str, hosts: tuple[int, ...]
) -> None:
    ranks, method = len(hosts), routed(compressor, route, hosts, **options)
    balance = {i.name: torch.zeros(i.numel, dtype=torch.float64) for i in ITEMS}
    for step in range(10):
        grads = gradients(step, ranks)
        for name, update in method.step(grads).items():
            balance[name] += sum(own[name].reshape(-1).double() for own in grads)
            balance[name] -= ranks * update.reshape(-1).double()
    for item in ITEMS:
        kept = torch.zeros(item.numel, dtype=torch.float64)
        for rank in range(ranks):
            kept += method.kept(rank).get(item.name, torch.zeros(item.numel)).reshape(-1).double()
        assert torch.allclose(balance[item.name], kept, atol=2e-3), item.name
    assert any(bool(kept.any()) for rank in range(ranks) for kept in method.kept(rank).values())


def test_hosts_keep_what_is_left_of_their_sums() -> None:
    item = [Item("w", 0, (4,))]
    table = {"scheme": {"compressor": "topk", "memory": "residual", "route": "hierarchical"}, "compressor": {"topk": {"density": 0.25}}}
    scheme = make_scheme(table, item, 3, hosts=(0, 0, 1))
    grads = [{"w": torch.tensor(values)} for values in ([3.0, 2.0, 0.0, 0.0], [-3.0, 2.0, 1.0, 0.0], [0.0, 0.0, 0.0, 6.0])]
    # The first host's sum is 0 4 1 0. The largest entry of the sum is not the largest entry of either rank.
    assert torch.allclose(scheme.step(grads)["w"], torch.tensor([0.0, 4.0, 0.0, 6.0]) / 3)
    assert scheme.kept(0)["w"].tolist() == [0.0, 0.0, 1.0, 0.0] and not scheme.kept(2)["w"].any()


def test_owners_keep_what_they_do_not_send_of_the_sum() -> None:
    item = [Item("w", 0, (4,))]
    table = {"scheme": {"compressor": "topk", "memory": "residual", "route": "shard"}, "compressor": {"topk": {"density": 0.25}}}
    scheme = make_scheme(table, item, 2)
    grads = [{"w": torch.tensor([3.0, 2.0, 0.0, 0.0])}, {"w": torch.tensor([0.0, 0.0, 1.0, 5.0])}]
    assert scheme.step(grads)["w"].tolist() == [0.0, 0.0, 0.0, 2.5]  # of the sum 3 0 0 5
    assert scheme.kept(0)["w"].tolist() == [3.0, 2.0, 0.0, 0.0], "3 as the owner, 2 as a rank"
    assert scheme.kept(1)["w"].tolist() == [0.0, 0.0, 1.0, 0.0]
    nothing = [{"w": torch.zeros(4)}] * 2
    assert scheme.step(nothing)["w"].tolist() == [1.5, 0.0, 0.0, 0.0]


def test_what_is_summed_on_the_way_takes_the_route_shard_as_flat() -> None:
    for compressor in ("none", "fp16", "powersgd"):
        options = {"rank": 2} if compressor == "powersgd" else {}
        memory = "residual" if compressor == "powersgd" else "none"
        flat, shard = (routed(compressor, route, (0, 0, 1), memory, **options) for route in ("flat", "shard"))
        for step in range(2):
            grads = gradients(step, 3)
            expected, found = flat.step(grads), shard.step(grads)
            assert all(torch.equal(found[i.name], expected[i.name]) for i in ITEMS)


def test_votes_are_those_of_hosts_and_no_means() -> None:
    item = [Item("w", 0, (2,))]
    grads = [{"w": torch.tensor(values)} for values in ([5.0, -1.0], [-1.0, -1.0], [1.0, 1.0])]
    votes = {}
    for route in ("flat", "hierarchical", "shard"):
        table = {"scheme": {"compressor": "signsgd", "route": route}}
        votes[route] = make_scheme(table, item, 3, hosts=(0, 0, 1)).step(grads)["w"].tolist()
    assert votes == {"flat": [1.0, -1.0], "hierarchical": [1.0, 0.0], "shard": [1.0, -1.0]}


def test_the_methods_of_a_file_are_those_of_its_route() -> None:
    for route, kind in (("hierarchical", Hierarchical), ("shard", Shard)):
        scheme = routed("topk", route, (0, 0, 1, 1), density=0.1)
        assert isinstance(scheme.methods[0], kind)
    with pytest.raises(ValueError, match="across buckets"):
        routed("topk", "shard", (0, 0), density=0.1, scope="bucket")
