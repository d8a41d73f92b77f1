"""The training of one scheme by ranks that train apart: the drift of some steps is exchanged, and no gradient."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

import penstock.torch as hvd
from penstock.common.rotation import Rotation

from .data import Task
from .recipes import Recipe
from .training import COUNTED, Training


class TrainingApart(Training):
    """LocalSteps exchanges the drift after every `chosen.rounds.every` steps, and the ranks average it.

    Inside a round each rank has a model of its own. What counts is the model that the ranks share: the anchors, which
    change only when the mean of a drift arrives. So the loss of a step is the loss of the anchors on the batch of the
    step. It is computed after the steps of a call, outside of their times."""

    def __init__(self, task: Task, chosen: Recipe, scheme: str | None, seed: int) -> None:
        super().__init__(task, chosen, scheme, seed)
        rounds = chosen.rounds
        self._rotation = Rotation(rounds.every, delay=rounds.delay)
        self.optimizer_words += f", rounds of {rounds.every} steps" + (f", delay {rounds.delay}" if rounds.delay else "")
        self._shared = task.make_model(seed)  # holds anchors, to be evaluated
        self._anchors: list[dict[str, torch.Tensor]] = []  # before each of the last steps; equal ones are one object

    def _exchanging(self, optimizer: torch.optim.Optimizer, scheme: str | None) -> Any:
        named = self.model.named_parameters()
        return hvd.LocalSteps(optimizer, outer=None, scheme=scheme, named_parameters=named, **vars(self.chosen.rounds))

    def _before(self, step: int) -> None:
        if self._rotation.landing(step) is not None or not self._anchors:
            self._anchors.append({name: anchor.clone() for name, anchor in self.optimizer.anchors().items()})
        else:
            self._anchors.append(self._anchors[-1])

    def _judged(self, losses: Sequence[float]) -> list[float]:
        first, judged = len(self.step_ms) - len(losses), []
        with torch.no_grad():
            for step, anchors in enumerate(self._anchors, first):
                model = self._holding(anchors)
                judged.append(float(self.task.loss(model, self.task.batch(self.seed, step, hvd.rank()))))
        self._anchors = []
        return judged

    @torch.no_grad()
    def _holding(self, anchors: Mapping[str, torch.Tensor]) -> nn.Module:
        for name, parameter in self._shared.named_parameters():
            parameter.copy_(anchors[name])
        return self._shared

    def _model(self) -> nn.Module:
        return self._holding(self.optimizer.anchors())

    def _bytes_per_step(self) -> dict[str, float]:
        """As for gradients in every step, but dense is an all-reduce in every step and not in every round."""
        counters, taken = self.counters(), len(self.step_ms)
        rounds = max(1, counters["steps"])
        return {f"{name}_per_step": counters[name] / (rounds if name in ABOUT_GRADIENTS else taken) for name in COUNTED}


ABOUT_GRADIENTS = ("dense_moved_bytes", "gradient_bytes")
