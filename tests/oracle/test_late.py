"""One step late: updates are those of the scheme, moved by one step, and the last one is applied too."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from .late import simulate_late
from .method import Item
from .schemes import make_scheme
from .training import simulate

RATE = 0.125


class Slope:
    """Rank r sees the loss (r + step) * w, whose gradient does not depend on w."""

    def make_model(self, seed: int) -> nn.Module:
        del seed
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    def batch(self, seed: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
        del seed
        return torch.tensor([[float(rank + step)]]), torch.zeros(1)

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        return model(batch[0]).sum()

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        return {"weight": float(next(model.parameters()))}


def run(apply: str, kind: Any, steps: int) -> tuple[list[float], float]:
    table = {"scheme": {"compressor": "none", "memory": "none", "apply": apply}}
    made = kind(
        Slope(),
        lambda model: make_scheme(table, [Item("weight", 0, (1, 1))], 2),
        ranks=2,
        steps=steps,
        seed=1,
        make_optimizer=lambda parameters: torch.optim.SGD(parameters, lr=RATE),
    )
    return made.losses, made.validation["weight"]


def test_each_update_is_applied_a_step_later_and_the_last_one_before_the_evaluation() -> None:
    slopes = [0.5 + step for step in range(4)]  # the mean of step and step + 1
    losses, weight = run("previous", simulate_late, 4)
    weights = [-RATE * sum(slopes[: max(0, step - 1)]) for step in range(4)]
    assert losses == [w * slope for w, slope in zip(weights, slopes)]
    assert weight == -RATE * sum(slopes)


def test_at_once_and_one_step_late_end_alike_where_gradients_do_not_depend_on_weights() -> None:
    assert run("current", simulate, 5)[1] == run("previous", simulate_late, 5)[1]
    assert run("current", simulate, 5)[0] != run("previous", simulate_late, 5)[0]
