"""The methods with a shift against hand-made cases and against the statements of their papers."""

from __future__ import annotations

import torch

from .cases import ITEMS, RANKS
from .method import Item
from .quantised import qsgd
from .shift import Diana, Ef21, Shifted, by_chance, by_top_k

ONE = [Item("w", 0, (2,))]


def _grads(*rows: list[float]) -> list[dict[str, torch.Tensor]]:
    return [{"w": torch.tensor(row)} for row in rows]


def test_ef21_adds_up_the_differences_that_were_sent() -> None:
    method = Ef21(ONE, 2, by_top_k(0.5))
    assert method.step(0, _grads([4.0, 1.0], [2.0, -6.0]))["w"].tolist() == [2.0, -3.0]
    # The new values: (0, 1) on rank 0, (2, 0) on rank 1.
    assert method.step(1, _grads([4.0, 1.0], [2.0, -6.0]))["w"].tolist() == [3.0, -2.5]


def test_zeta_averages_before_the_difference_is_taken() -> None:
    method = Ef21(ONE, 1, by_top_k(1.0), zeta=0.5)
    assert method.step(0, _grads([4.0, 1.0]))["w"].tolist() == [2.0, 0.5]
    assert method.step(1, _grads([0.0, 1.0]))["w"].tolist() == [1.0, 0.75]


def test_diana_adds_what_was_sent_to_the_shifts_before_they_move() -> None:
    method = Diana(ONE, 2, by_top_k(1.0), alpha=0.5)
    assert method.step(0, _grads([4.0, 1.0], [2.0, -6.0]))["w"].tolist() == [3.0, -2.5]
    assert method.mean["w"].tolist() == [1.5, -1.25]
    assert method.step(1, _grads([0.0, 1.0], [2.0, 0.0]))["w"].tolist() == [1.0, 0.5]


def _end_of_constant_gradients(method: Shifted) -> float:
    """Relative distance between the update and the mean gradient after many steps with constant gradients."""
    draw = torch.Generator().manual_seed(5)
    grads = [{item.name: torch.randn(item.shape, generator=draw) for item in ITEMS} for _ in range(RANKS)]
    for step in range(400):
        update = method.step(step, grads)
    means = {item.name: sum(g[item.name] for g in grads) / RANKS for item in ITEMS}
    return max(float((update[n] - means[n]).norm() / means[n].norm().clamp(min=1e-9)) for n in means if means[n].numel())


def test_what_stays_the_same_is_learnt_whole() -> None:
    assert _end_of_constant_gradients(Ef21(ITEMS, RANKS, by_top_k(0.05))) < 1e-5
    # The differences shrink by at most a tenth per step. QSGD without shifts would stay above 0.1.
    assert _end_of_constant_gradients(Diana(ITEMS, RANKS, by_chance(qsgd(), 1))) < 1e-4
