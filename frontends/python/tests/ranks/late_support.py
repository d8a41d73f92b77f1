"""What the checks of means that are applied one step late share: schemes, loops, and delayed
training in plain torch, in which every rank computes the gradients of all ranks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Callable

import torch
from support import loss_of, make_batch, make_model, mine

import penstock.torch as hvd

STEPS = 6
RATE = 0.2
DENSITY = 0.25
DENSE = '[scheme]\napply = "previous"\n'
TOP_K = f"""
[scheme]
compressor = "topk"
memory = "residual"
apply = "previous"
[compressor.topk]
density = {DENSITY}
value_type = "fp32"
"""
Tensors = list[torch.Tensor]


def sgd(model: torch.nn.Module, momentum: float = 0.0) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)


def wrap(model: torch.nn.Module, scheme: str, **options: Any) -> Any:
    inner = options.pop("inner", None) or sgd(model)
    named = model.named_parameters()
    return hvd.DistributedOptimizer(inner, named_parameters=named, scheme=scheme, **options)


def backward(model: torch.nn.Module, step: int) -> None:
    x, y = make_batch(step, 4 * hvd.size())
    loss_of(model, mine(x), mine(y)).backward()


def train(model: torch.nn.Module, optimizer: Any, first: int, last: int) -> None:
    for step in range(first, last):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()


# ---- the oracle ----


def dense_mean(gradients: Sequence[Tensors]) -> Tensors:
    return [sum(of_ranks) / len(of_ranks) for of_ranks in zip(*gradients)]


class MeanOfTopK:
    """acc = residual + gradient; the largest ceil(density * n) of acc are sent, the rest stays."""

    def __init__(self) -> None:
        self.residuals: dict[tuple[int, int], torch.Tensor] = {}

    def __call__(self, gradients: Sequence[Tensors]) -> Tensors:
        means = []
        for number in range(len(gradients[0])):
            total = torch.zeros(gradients[0][number].numel())
            for rank, own in enumerate(gradients):
                acc = own[number].reshape(-1) + self.residuals.get((rank, number), 0.0)
                sent = torch.zeros_like(acc)
                order = sorted(range(acc.numel()), key=lambda at: -abs(acc[at].item()))
                for at in order[: math.ceil(DENSITY * acc.numel())]:
                    sent[at] = acc[at]
                self.residuals[rank, number] = acc - sent
                total += sent
            means.append((total / len(gradients)).reshape(gradients[0][number].shape))
        return means


def oracle(
    mean_of: Callable[[Sequence[Tensors]], Tensors], steps: int = STEPS, with_last: bool = False
) -> torch.nn.Module:
    """x(t + 1) = x(t) - rate * mean of g(t - 1), where g(-1) = 0. with_last: applies the last mean
    too."""
    model = make_model()
    means: Tensors = [torch.zeros_like(p) for p in model.parameters()]
    for step in range(steps):
        x, y = make_batch(step, 4 * hvd.size())
        gradients = []
        for part_x, part_y in zip(x.chunk(hvd.size()), y.chunk(hvd.size())):
            loss = loss_of(model, part_x, part_y)
            gradients.append(list(torch.autograd.grad(loss, list(model.parameters()))))
        with torch.no_grad():
            for parameter, mean in zip(model.parameters(), means):
                parameter -= RATE * mean
        means = mean_of(gradients)
    with torch.no_grad():
        for parameter, mean in zip(model.parameters(), means if with_last else ()):
            parameter -= RATE * mean
    return model


def near(got: torch.nn.Module, expected: torch.nn.Module) -> None:
    for (name, a), b in zip(got.named_parameters(), expected.parameters()):
        gap = (a - b).abs().max().item()
        assert gap <= 1e-6, f"{name} differs by {gap}"
