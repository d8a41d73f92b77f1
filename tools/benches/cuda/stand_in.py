"""A model without a purpose: parameters of given shapes, whose backward takes a known time of matrix products on the current
stream and makes each gradient when a real backward would."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from benches.step.models import Gradient

SHIFT = 7919 * 64  # entries by which values move from step to step
SPARE = 1 << 22  # so far they move before they begin again


def wait(device: torch.device) -> None:
    """Until the device has done all; the measurement's own, outside of what is counted."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


class Products:
    """Matrix products that keep a device busy; `each_ms` is what one takes, where nobody else works on the device."""

    def __init__(self, device: torch.device) -> None:
        side = 2048 if device.type == "cuda" else 128
        self.left, self.right, self.out = (torch.randn(side, side, device=device) for _ in range(3))
        self.run(10)
        wait(device)
        start = time.perf_counter()
        self.run(50)
        wait(device)
        self.each_ms = 1e3 * (time.perf_counter() - start) / 50

    def run(self, count: int) -> None:
        for _ in range(count):
            torch.mm(self.left, self.right, out=self.out)


class Backward:
    """How many products come before each gradient, and its values: normal times exp(normal), other ones on every rank and in
    every step."""

    def __init__(self, gradients: Sequence[Gradient], products: Products, backward_ms: float, device: torch.device, rank: int) -> None:
        self.gradients, self.products, self.device = gradients, products, device
        total = backward_ms / products.each_ms
        self.counts, behind = [0] * len(gradients), 0
        for number in reversed(range(len(gradients))):  # as backward goes
            reached = round(gradients[number].share * total)
            self.counts[number] = reached - behind
            behind = reached
        self.elements = sum(gradient.elements for gradient in gradients)
        generator = torch.Generator(device).manual_seed(rank + 1)
        self.source = torch.randn(self.elements + SPARE, device=device, generator=generator)
        self.source *= torch.randn(self.elements + SPARE, device=device, generator=generator).exp_()
        self.firsts = [0]
        for gradient in gradients:
            self.firsts.append(self.firsts[-1] + gradient.elements)
        self.first = 0

    def begin(self) -> None:
        self.first = (self.first + SHIFT) % SPARE

    def gradient(self, number: int) -> torch.Tensor:
        """Queues the products before it, and what writes it."""
        self.products.run(self.counts[number])
        gradient = self.gradients[number]
        begin = self.first + self.firsts[number]
        return self.source[begin : begin + gradient.elements].view(gradient.shape).clone()


class Layer(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, value: torch.Tensor, _: torch.Tensor, backward: Backward, number: int) -> torch.Tensor:
        context.work, context.number = backward, number
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: torch.Tensor) -> Any:
        return gradient, context.work.gradient(context.number), None, None


class Layers(nn.Module):
    def __init__(self, backward: Backward) -> None:
        super().__init__()
        self.work = backward
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(one.shape, device=backward.device)) for one in backward.gradients)

    def forward(self) -> torch.Tensor:
        value = torch.zeros((), device=self.work.device, requires_grad=True)
        for number, weight in enumerate(self.weights):
            value = Layer.apply(value, weight, self.work, number)
        return value
