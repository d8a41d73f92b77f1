"""Ranks that train apart, against dense training and against a loop over numbers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from .apart import simulate_apart
from .dense import DenseMean
from .method import Scheme
from .schemes import items_of
from .training import simulate

RANKS, RATE = 3, 0.1


class Line:
    """One weight w that starts at 2; the loss of a batch (x, y) is (w x - y)^2."""

    def make_model(self, seed: int) -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, 2.0)
        return model

    def batch(self, seed: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.tensor([[0.5 + 0.25 * rank]]), torch.tensor([[0.125 * step]])

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return (model(batch[0]) - batch[1]).square().mean()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"weight": float(next(model.parameters()).detach())}


def dense(model: nn.Module) -> Scheme:
    return Scheme([DenseMean(items_of(model), RANKS)])


def plain(parameters):
    return torch.optim.SGD(parameters, lr=RATE)


def step_of_the_ranks(step: int, shared: float, own: list[float]) -> float:
    """Changes every rank's own weight by one step of plain SGD. Returns the mean loss of the shared weight before it."""
    squares = []
    for rank in range(RANKS):
        x, y = 0.5 + 0.25 * rank, 0.125 * step
        squares.append((shared * x - y) ** 2)
        own[rank] -= RATE * 2 * x * (own[rank] * x - y)
    return sum(squares) / RANKS


def test_rounds_of_one_step_are_dense_training() -> None:
    apart = simulate_apart(Line(), dense, every=1, ranks=RANKS, steps=6, seed=1, make_optimizer=plain)
    together = simulate(Line(), dense, ranks=RANKS, steps=6, seed=1, make_optimizer=plain)
    assert apart.losses == pytest.approx(together.losses, rel=1e-5)
    assert apart.validation["weight"] == pytest.approx(together.validation["weight"], rel=1e-5)


def test_a_round_averages_what_the_ranks_reached_alone() -> None:
    """Seven steps in rounds of three: the shared weight changes after steps 3 and 6, and its losses are told."""
    shared, own, losses = 2.0, [2.0] * RANKS, []
    for step in range(7):
        losses.append(step_of_the_ranks(step, shared, own))
        if step in (2, 5):
            shared = sum(own) / RANKS
            own = [shared] * RANKS
    run = simulate_apart(Line(), dense, every=3, ranks=RANKS, steps=7, seed=1, make_optimizer=plain)
    assert run.losses == pytest.approx(losses, rel=1e-5)
    assert run.validation["weight"] == pytest.approx(shared, rel=1e-5)


def test_a_mean_that_comes_late_moves_the_shared_weight_and_leaves_a_share_of_the_own_one() -> None:
    """Seven steps in rounds of three: drifts leave after steps 3 and 6, and their means arrive after step 5."""
    shared, own, losses, mean = 2.0, [2.0] * RANKS, [], 0.0
    for step in range(7):
        losses.append(step_of_the_ranks(step, shared, own))
        if step in (2, 5):
            mean = sum(shared - weight for weight in own) / RANKS
        if step == 4:
            shared -= mean
            own = [0.25 * weight + 0.75 * shared for weight in own]
    run = simulate_apart(
        Line(), dense, every=3, delay=2, mix=0.25, ranks=RANKS, steps=7, seed=1, make_optimizer=plain
    )
    assert run.losses == pytest.approx(losses, rel=1e-5)
    assert run.validation["weight"] == pytest.approx(shared, rel=1e-5)
