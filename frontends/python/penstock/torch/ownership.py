"""Which exchange averages a parameter's gradient: the one made last.

A parameter that is wrapped again goes over to the new optimizer, at once and on every rank alike,
whether or not the old optimizer was garbage by then: its hooks come off and its set is ended here,
for the garbage collector of each rank has a time of its own.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any, Protocol

import torch
from torch.utils.weak import WeakIdKeyDictionary

from penstock import _library as c
from penstock.common.exceptions import HorovodInternalError
from penstock.common.gradient_set import GradientSet
from penstock.common.process_sets import ProcessSet
from penstock.torch import world
from penstock.torch.functions import allgather_object


class Exchange(Protocol):
    """What a claim asks of the exchange that laid it."""

    set: Any

    def give_way(self) -> None:
        """Another optimizer takes over the parameters."""


class Claim:
    """What one exchange laid upon its parameters. Outlives the exchange, and never keeps a
    parameter alive."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = weakref.ref(exchange)
        self.set: GradientSet = exchange.set
        self.hooks: list[Any] = []

    @property
    def open(self) -> bool:
        """Gradients were handed in and not waited for."""
        return self.set.phase in (c.PHASE_OPEN, c.PHASE_DEFERRED)

    def take_off(self) -> None:
        """Takes the hooks off the parameters."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def give_way(self, open_somewhere: bool) -> None:
        """Ends the exchange for good, in favour of a new one; every rank does so.

        open_somewhere: some rank has handed gradients in, which waits for all ranks."""
        self.take_off()
        exchange = self.exchange()
        try:
            if exchange is not None:
                exchange.give_way()
            if open_somewhere and self.set.alive:
                if self.set.phase == c.PHASE_SYNCHRONIZED:
                    self.set.step_end(c.STEP_FORGOTTEN)
                self.set.wait_all()
        except (HorovodInternalError, ValueError):
            pass  # the step is given up in any case; the new set will meet what is wrong
        if self.set.alive:
            world.current().destroy_set(self.set)


# By identity: tensors compare element by element.
_claims: WeakIdKeyDictionary = WeakIdKeyDictionary()


def displace(parameters: Sequence[torch.Tensor], process_set: ProcessSet) -> None:
    """Ends every exchange that has one of these parameters; in the order of the parameters, so that
    ranks agree. Collective where there is one."""
    seen: list[Claim] = []
    for parameter in parameters:
        claim = _claims.get(parameter)
        if claim is not None and claim not in seen:
            seen.append(claim)
    alive = [claim for claim in seen if claim.set.alive]
    if not alive:
        return
    name = f"penstock.displace.{alive[0].set.name}"
    told = allgather_object([claim.open for claim in alive], name, process_set)
    for number, claim in enumerate(alive):
        claim.give_way(any(opened[number] for opened in told))


def register(claim: Claim, parameters: Sequence[torch.Tensor]) -> None:
    """Notes whose the parameters are from now on."""
    for parameter in parameters:
        _claims[parameter] = claim


def check_unclaimed(parameters: Sequence[torch.Tensor]) -> None:
    """ValueError where a DistributedOptimizer averages the gradients of one of these parameters."""
    for parameter in parameters:
        claim = _claims.get(parameter)
        if claim is not None and claim.set.alive and claim.exchange() is not None:
            raise ValueError(
                "gradients of this model would be averaged twice: by ddp_hook, and by a "
                "DistributedOptimizer that was made of its parameters; give the optimizer "
                "unwrapped, or train without DistributedDataParallel"
            )
