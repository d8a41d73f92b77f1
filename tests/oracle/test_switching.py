"""Switches: kept values stay, or are handed over once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from .cases import ITEMS, RANKS, gradients
from .dgc import DenseWithMomentum, Dgc
from .method import Item
from .schemes import make_scheme
from .threshold import GaussianK

Table = Mapping[str, Any]


def switched(compressor: str, memory: str, *switches: tuple[int, Table], **options: Any) -> Table:
    return {
        "scheme": {"compressor": compressor, "memory": memory},
        "compressor": {compressor: options} if options else {},
        "switch": [{"at_step": at_step, "set": changes} for at_step, changes in switches],
    }


@pytest.mark.parametrize(
    "table",
    [
        switched("topk", "residual", (3, {"compressor": {"topk": {"density": 0.5}}}), (6, {"scheme": {"compressor": "none"}})),
        switched("topk", "residual", (4, {"scheme": {"compressor": "gaussiank"}}), density=0.1),
        switched("topk", "residual", (4, {"scheme": {"memory": "none", "compressor": "none"}}), density=0.1),
    ],
    ids=["to whole", "to another compressor", "to no memory"],
)
def test_nothing_that_a_residual_keeps_is_lost_in_a_switch(table: Table) -> None:
    scheme = make_scheme(table, ITEMS, RANKS)
    balance = {item.name: torch.zeros(item.numel, dtype=torch.float64) for item in ITEMS}
    for step in range(9):
        grads = gradients(step)
        for name, update in scheme.step(grads).items():
            balance[name] += (sum(g[name] for g in grads) - RANKS * update).reshape(-1).double()
    for item in ITEMS:
        kept = sum(scheme.kept(rank).get(item.name, torch.zeros(item.numel)).double() for rank in range(RANKS))
        assert float((balance[item.name] - kept).abs().max()) < 1e-4


def test_a_warm_up_is_the_first_scheme_until_the_switch_and_then_has_its_state() -> None:
    change = {"compressor": {"dgc": {"density": 0.01, "value_type": "fp32"}}}
    first = {"compressor": {"dgc": {"density": 0.25, "value_type": "fp32"}}}
    scheme = make_scheme(switched("dgc", "dgc", (0, first), (2, change)), ITEMS, RANKS)
    wide = make_scheme({"scheme": {"compressor": "dgc", "memory": "dgc"}, **first}, ITEMS, RANKS)
    for step in range(2):
        ours, theirs = scheme.step(gradients(step)), wide.step(gradients(step))
        assert all(torch.equal(ours[i.name], theirs[i.name]) for i in ITEMS)
    scheme.step(gradients(2))
    (before,), (after,) = wide.methods, scheme.methods
    assert isinstance(before, Dgc) and isinstance(after, Dgc) and after.options.density == 0.01
    # Both continue from one state. After one more gradient the later method sent 1 % of it.
    grads = gradients(2)
    for rank in range(RANKS):
        u, v = before.momentum[rank]["weight"], before.velocity[rank]["weight"]
        u.mul_(0.9).add_(grads[rank]["weight"].reshape(-1))
        v.add_(u)
        stayed = after.velocity[rank]["weight"] != 0
        assert int((~stayed).sum()) <= 14 and torch.equal(after.velocity[rank]["weight"][stayed], v[stayed])


def test_a_velocity_is_applied_once_where_the_gradient_is_sent_whole_from_now_on() -> None:
    item = [Item("w", 0, (4,))]
    table = switched("dgc", "dgc", (1, {"scheme": {"compressor": "none"}}), density=0.25)
    scheme = make_scheme(table, item, 2)
    first = [{"w": torch.tensor([8.0, 2.0, -1.0, 0.5])}, {"w": torch.tensor([8.0, -1.0, 3.0, 0.5])}]
    assert scheme.step(first)["w"].tolist() == [8.0, 0.0, 0.0, 0.0]
    nothing = [{"w": torch.zeros(4)}, {"w": torch.zeros(4)}]
    assert scheme.step(nothing)["w"].tolist() == [0.0, 0.5, 1.0, 0.5], "the mean of what was kept"
    assert not scheme.step(nothing)["w"].any(), "and no momentum of it"
    assert isinstance(scheme.methods[0], DenseWithMomentum)


def test_a_residual_goes_round_the_momentum_of_the_memory_that_follows() -> None:
    item = [Item("w", 0, (4,))]
    table = switched("topk", "residual", (1, {"scheme": {"compressor": "dgc", "memory": "dgc"}}), density=0.25)
    scheme = make_scheme(table, item, 2)
    first = [{"w": torch.tensor([8.0, 2.0, -1.0, 0.5])}, {"w": torch.tensor([8.0, -1.0, 3.0, 0.5])}]
    scheme.step(first)
    nothing = [{"w": torch.zeros(4)}, {"w": torch.zeros(4)}]
    assert scheme.step(nothing)["w"].tolist() == [0.0, 0.5, 1.0, 0.5]
    assert not any(bool(scheme.step(nothing)["w"].any()) for _ in range(3))


def test_the_momentum_of_the_mean_becomes_every_ranks() -> None:
    item = [Item("w", 0, (3, 100))]
    scheme = make_scheme(switched("none", "dgc", (1, {"scheme": {"compressor": "dgc"}})), item, 2)
    grads = [{"w": torch.full((3, 100), 1.0)}, {"w": torch.full((3, 100), 3.0)}]
    scheme.step(grads)
    scheme.step([{"w": torch.zeros(3, 100)}] * 2)
    (method,) = scheme.methods
    assert isinstance(method, Dgc)
    for rank in range(2):
        kept = method.velocity[rank]["w"]
        assert torch.allclose(kept[kept != 0], torch.tensor(0.9 * 2.0)) and int((kept == 0).sum()) == 1


def test_a_compressor_that_stays_goes_on_with_what_it_learned() -> None:
    table = switched("gaussiank", "residual", (1, {"compressor": {"gaussiank": {"density": 0.1}}}), density=0.05)
    scheme = make_scheme(table, ITEMS, 1)
    scheme.step(gradients(0, 1))
    (before,) = scheme.methods
    scheme.step(gradients(1, 1))
    (after,) = scheme.methods
    assert isinstance(before, GaussianK) and isinstance(after, GaussianK) and before is not after
    assert before.steering[0]["weight"] is after.steering[0]["weight"]


def test_what_is_not_simulated_is_refused() -> None:
    table = switched("powersgd", "residual", (1, {"compressor": {"powersgd": {"rank": 2}}}), rank=4)
    scheme = make_scheme(table, ITEMS, RANKS)
    scheme.step(gradients(0))
    with pytest.raises(ValueError, match="PowerSgd"):
        scheme.step(gradients(1))
