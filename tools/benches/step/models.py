"""Gradients of the shipped models (tools/penstock/plan/profiles), and a model whose backward hands them out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

PROFILES = Path(__file__).resolve().parents[2] / "penstock/plan/profiles"
SEED_OF_A_SET = 1000


def known_models() -> list[str]:
    return sorted(path.stem for path in PROFILES.glob("*.csv") if path.stem != "costs")


def shapes_of(model: str) -> list[tuple[int, ...]]:
    """In order of registration."""
    text = [line for line in (PROFILES / f"{model}.csv").read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [tuple(map(int, row["shape"].split("x"))) for row in csv.DictReader(text)]


def heavy_tailed(shapes: Sequence[tuple[int, ...]], rank: int, number: int) -> list[torch.Tensor]:
    """Values of a rank's step: normal ones over the root of uniform ones, so that few are far larger than the rest, as in gradients."""
    generator = torch.Generator().manual_seed(SEED_OF_A_SET * number + rank)
    found = []
    for shape in shapes:
        values = torch.randn(shape, generator=generator)
        values /= torch.rand(shape, generator=generator).clamp_(min=1e-4).sqrt_()
        found.append(values.mul_(1e-3))
    return found


class GiveGradients(torch.autograd.Function):
    """A loss whose backward is over at once: each parameter gets a gradient that lies ready."""

    @staticmethod
    def forward(context: Any, gradients: Sequence[torch.Tensor], *parameters: torch.Tensor) -> torch.Tensor:
        context.gradients = gradients
        return torch.zeros(())

    @staticmethod
    def backward(context: Any, *_: torch.Tensor) -> Any:
        return (None, *context.gradients)


class Model(nn.Module):
    """Parameters of these shapes, zeros."""

    def __init__(self, gradients: Sequence[torch.Tensor]) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(gradient.shape)) for gradient in gradients)

    def forward(self, gradients: Sequence[torch.Tensor]) -> torch.Tensor:
        return GiveGradients.apply(gradients, *self.weights)

    def results(self) -> list[torch.Tensor]:
        return [parameter.grad for parameter in self.parameters() if parameter.grad is not None]

    def forget(self) -> None:
        for parameter in self.parameters():
            parameter.grad = None
