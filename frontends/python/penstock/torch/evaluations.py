"""Warns of an optimizer that computes its gradients several times in one step, as LBFGS does, under
a scheme that keeps values between gradients."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from penstock.common.gradient_set import GradientSet
from penstock.torch import world

# A sharpness-aware optimizer computes two gradients in a step, which is no reason for a warning.
MANY = 3


class Evaluations:
    """The backwards of one set inside the steps of optimizers."""

    def __init__(self) -> None:
        self._in_step = 0
        self._is_told = False

    def optimizer_begins(self) -> None:
        """An optimizer of the set begins a step."""
        self._in_step = 0

    def begins(self, gradients: GradientSet, inside: Iterable[list[int]]) -> None:
        """A backward begins. inside: for each optimizer that is inside a step, the numbers of its
        parameters in the set. Prints the warning once per set, on rank 0."""
        if self._is_told or not any(inside):
            return
        self._in_step += 1
        if self._in_step != MANY or not gradients.report().get("state_bytes"):
            return
        self._is_told = True
        if world.rank() != 0:
            return
        print(
            f"penstock warning: {gradients.name}: an optimizer computes its gradients "
            f"{MANY} times in one step (LBFGS does), and this scheme keeps a part of each gradient "
            "for the next one. So a gradient contains values of other points, and training may "
            'diverge. Take a scheme that keeps nothing: memory = "none" under [scheme]',
            file=sys.stderr,
            flush=True,
        )
