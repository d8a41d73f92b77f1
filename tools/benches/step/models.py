"""Gradients of the shipped models (tools/penstock/plan/profiles)."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import torch

from .contestants import PROFILES

SEED_OF_A_SET = 1000


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
