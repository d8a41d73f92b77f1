"""Training with P simulated ranks: one set of weights, P gradients per step, one update.

Ranks always have equal weights, so there is one copy of the weights. Data and the state of the scheme differ by rank.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import nn

from .method import Gradients, Scheme


class TrainingTask(Protocol):
    """The functions of a task that the simulation needs."""

    def make_model(self, seed: int) -> nn.Module: ...

    def batch(self, seed: int, step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor]: ...

    def loss(self, model: nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor: ...

    def evaluate(self, model: nn.Module) -> dict[str, float]: ...


@dataclass
class Run:
    """The result of a run: the mean loss over ranks of each step in nats, and the final validation."""

    losses: list[float] = field(default_factory=list)
    validation: dict[str, float] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        return {"losses": self.losses, **self.validation}


def gradient(task: TrainingTask, model: nn.Module, seed: int, step: int, rank: int) -> tuple[float, Gradients]:
    """Loss and gradients of one rank. A missing gradient is zero."""
    model.zero_grad(set_to_none=True)
    loss = task.loss(model, task.batch(seed, step, rank))
    loss.backward()
    return float(loss.detach()), {
        name: torch.zeros_like(p) if p.grad is None else p.grad for name, p in model.named_parameters()
    }


def simulate(
    task: TrainingTask,
    make_scheme: Callable[[nn.Module], Scheme],
    *,
    ranks: int,
    steps: int,
    seed: int,
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    on_step: Callable[[int, float], None] | None = None,
) -> Run:
    """Trains for `steps` steps: the scheme combines the gradients of all ranks, and an optimizer of torch applies the result.
    An exception of `on_step` ends the run."""
    model = task.make_model(seed)
    scheme = make_scheme(model)
    optimizer = make_optimizer(model.parameters())
    run = Run()
    for step in range(steps):
        results = [gradient(task, model, seed, step, rank) for rank in range(ranks)]
        update = scheme.step([grads for _, grads in results])
        for name, parameter in model.named_parameters():
            parameter.grad = update[name]
        optimizer.step()
        run.losses.append(sum(loss for loss, _ in results) / ranks)
        if on_step is not None:
            on_step(step, run.losses[-1])
    run.validation = task.evaluate(model)
    return run
