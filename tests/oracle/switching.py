"""Schemes that change at given steps, and the values that their memories keep.

If the plugin of a memory stays, its state stays. If a memory is replaced, or its gradient is sent whole from then on, it
hands over its kept values: they are added to the next gradient of this rank. A new memory with momentum would apply them
1 / (1 - m) times, which is wrong: a velocity has had its momentum already, and a residual needs none. So with such a memory
the mean of the kept values is added once, to the update of this step. For `dgc` that stays while the gradient is sent whole:

    u = m u + g,    update = u + (1/P) sum_r v_r    in that step,    update = u    later.

Its momentum, which differs from rank to rank, ends there. In the opposite switch every rank takes the momentum of the mean.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from .dense import DenseMean
from .dgc import DenseWithMomentum, Dgc
from .low_rank import _LowRank
from .method import Gradients, Item, Method, Scheme, ascending_sum
from .ok_topk import OkTopK
from .quantised import Signum
from .sparse_more import AdTopK
from .threshold import Steered

WITH_MOMENTUM = ("dgc", "momentum")
_STATEFUL = (OkTopK, AdTopK, _LowRank)  # compressors with their own state, which a change of options would carry over


@dataclass(frozen=True)
class Stage:
    """The methods and memories from step `at_step` on."""

    at_step: int
    make: Callable[[], list[Method]]
    memory_of: Mapping[str, str]  # plugin by gradient


class SwitchingScheme(Scheme):
    """Stages in ascending order, the first one at step 0."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        super().__init__(stages[0].make())
        self.current, *self.later = stages

    def step(self, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        given = [dict(of_rank) for of_rank in grads]
        once: Gradients = {}
        while self.later and self.later[0].at_step == self.steps:
            self._switch(self.later.pop(0), given, once)
        update = super().step(given)
        return {name: value + once[name] if name in once else value for name, value in update.items()}

    def _switch(self, stage: Stage, given: list[dict[str, torch.Tensor]], once: Gradients) -> None:
        before = {item.name: method for method in self.methods for item in method.items}
        self.methods = stage.make()
        for method in self.methods:
            for item in method.items:
                old = before[item.name]
                stays = self.current.memory_of[item.name] == stage.memory_of[item.name]
                if stays and not (_whole(method, item) and not _whole(old, item)):
                    _carry_over(old, method, item)
                    continue
                kept = [old.kept(rank).get(item.name) for rank in range(method.ranks)]
                if kept[0] is None:
                    continue
                if stage.memory_of[item.name] in WITH_MOMENTUM:
                    once[item.name] = (ascending_sum(kept) / method.ranks).reshape(item.shape)
                    continue
                for of_rank, own in zip(given, kept):
                    of_rank[item.name] = of_rank[item.name] + own.reshape(item.shape)
        self.current = stage


def _whole(method: Method, item: Item) -> bool:
    """Whether the whole gradient is sent."""
    if isinstance(method, _LowRank):
        return all(item.name != factored.name for factored in method.factored)
    return isinstance(method, (DenseMean, DenseWithMomentum))


def _carry_over(old: Method, new: Method, item: Item) -> None:
    """Copies the state of a memory that stays, and of a compressor whose plugin stays."""
    name = item.name
    if isinstance(old, _STATEFUL) or isinstance(new, _STATEFUL):
        kind = type(old if isinstance(old, _STATEFUL) else new).__name__
        raise ValueError(f"a switch goes through {kind} with one memory, which this oracle does not simulate")
    if isinstance(new, DenseWithMomentum) and isinstance(old, DenseWithMomentum):
        new.momentum[name] = old.momentum[name]
    for rank in range(new.ranks):
        if isinstance(new, Dgc) and isinstance(old, DenseWithMomentum):
            new.momentum[rank][name] = old.momentum[name].reshape(-1).clone()
        elif isinstance(new, Dgc) and isinstance(old, Dgc):
            new.momentum[rank][name] = old.momentum[rank][name]
            new.velocity[rank][name] = old.velocity[rank][name]
        elif isinstance(new, Signum) and isinstance(old, Signum):
            new.average[rank][name] = old.average[rank][name]
        elif getattr(new, "residual", None) is not None and getattr(old, "residual", None) is not None:
            new.residual[rank][name] = old.residual[rank][name]
        if isinstance(new, Steered) and type(old) is type(new):
            new.steering[rank][name] = old.steering[rank][name]
