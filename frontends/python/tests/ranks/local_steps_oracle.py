"""Ranks that train apart, simulated in one process from the papers' formulas, in plain torch: no
code of Penstock takes part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Callable

import torch

Train = Callable[[int, int], None]  # (rank, step): one inner step of this rank's model


@dataclass
class Way:
    """The arguments of a run. density: the share of entries that top-k keeps; 0: all travel."""

    every: int
    fragments: int = 1
    delay: int = 0
    mix: float = 0.0
    lr: float = 0.7
    momentum: float = 0.9
    nesterov: bool = True
    density: float = 0.0


def fragment_of(name: str, fragments: int) -> int:
    """Modules 0, 2, 4 and 6 of the test's model are its layers number 0, 1, 2 and 3."""
    return int(name.split(".")[0]) // 2 % fragments


class Simulation:
    """All ranks of a run. models: one for each rank, equal at first."""

    def __init__(self, models: Sequence[torch.nn.Module], train: Train, way: Way) -> None:
        self.models, self.train, self.way = models, train, way
        self.anchors = {n: p.detach().clone() for n, p in models[0].named_parameters()}
        self.velocity = {n: torch.zeros_like(a) for n, a in self.anchors.items()}
        self.kept = [{n: torch.zeros_like(a) for n, a in self.anchors.items()} for _ in models]
        self.travelling: dict[int, dict[str, torch.Tensor]] = {}  # by the step of its landing

    def run(self, steps: int, after: int = 0) -> None:
        """Makes `steps` steps, of which the first has the number after + 1."""
        way = self.way
        for step in range(after + 1, after + steps + 1):
            for rank in range(len(self.models)):
                self.train(rank, step - 1)
            landed = self.travelling.pop(step, None)
            if landed is not None:
                self._land(landed)
            for fragment in range(way.fragments):
                if step % way.every == (fragment + 1) * way.every // way.fragments % way.every:
                    means = self._exchange(fragment)
                    if way.delay == 0:
                        self._land(means)
                    else:
                        self.travelling[step + way.delay] = means

    def _exchange(self, fragment: int) -> dict[str, torch.Tensor]:
        means = {}
        for name, anchor in self.anchors.items():
            if fragment_of(name, self.way.fragments) != fragment:
                continue
            total = torch.zeros_like(anchor)
            for rank, model in enumerate(self.models):
                total += self._sent(rank, name, anchor - model.get_parameter(name).detach())
            means[name] = total / len(self.models)
        return means

    def _sent(self, rank: int, name: str, drift: torch.Tensor) -> torch.Tensor:
        if not self.way.density:
            return drift
        whole = (drift + self.kept[rank][name]).reshape(-1)
        largest = whole.abs().argsort(descending=True)[: round(self.way.density * whole.numel())]
        sent = torch.zeros_like(whole)
        sent[largest] = whole[largest]
        self.kept[rank][name] = (whole - sent).reshape(drift.shape)
        return sent.reshape(drift.shape)

    @torch.no_grad()
    def _land(self, means: dict[str, torch.Tensor]) -> None:
        way = self.way
        for name, mean in means.items():
            self.velocity[name] = way.momentum * self.velocity[name] + mean
            velocity = self.velocity[name]
            move = mean + way.momentum * velocity if way.nesterov else velocity
            self.anchors[name] = self.anchors[name] - way.lr * move
            for model in self.models:
                own = model.get_parameter(name)
                own.copy_(way.mix * own + (1 - way.mix) * self.anchors[name])
