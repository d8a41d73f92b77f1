"""One step late: the optimizer applies the update of the step before.

    x(t + 1) = optimizer(x(t), update of g(t - 1)),    and nothing in the first step.

The last update is applied before the evaluation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from .method import Gradients, Scheme
from .training import Run, TrainingTask, simulate


class OneStepLate(Scheme):
    """A scheme whose updates arrive one step late. `before` is the update of the last step."""

    def __init__(self, scheme: Scheme) -> None:
        super().__init__(scheme.methods)
        self.scheme = scheme
        self.before: Mapping[str, torch.Tensor | None] | None = None

    def step(self, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        now = self.scheme.step(grads)
        due = dict.fromkeys(now) if self.before is None else self.before
        self.before = now
        return due  # type: ignore[return-value]  # in the first step no parameter has a gradient


class _Late:
    """The task, which keeps the scheme and the optimizer of the simulation."""

    def __init__(self, task: TrainingTask, make_scheme: Callable[[nn.Module], OneStepLate], make_optimizer: Any) -> None:
        self.task, self.make_model, self.batch, self.loss = task, task.make_model, task.batch, task.loss
        self._make_scheme, self._make_optimizer = make_scheme, make_optimizer

    def scheme(self, model: nn.Module) -> OneStepLate:
        self.made = self._make_scheme(model)
        return self.made

    def optimizer(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
        self.stepper = self._make_optimizer(parameters)
        return self.stepper

    def evaluate(self, model: nn.Module) -> dict[str, float]:
        assert self.made.before is not None
        for name, parameter in model.named_parameters():
            parameter.grad = self.made.before[name]
        self.stepper.step()
        return self.task.evaluate(model)


def simulate_late(
    task: TrainingTask,
    make_scheme: Callable[[nn.Module], OneStepLate],
    *,
    make_optimizer: Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer],
    **settings: Any,
) -> Run:
    """As `simulate`; the last update is applied before the evaluation."""
    late = _Late(task, make_scheme, make_optimizer)
    return simulate(late, late.scheme, make_optimizer=late.optimizer, **settings)
