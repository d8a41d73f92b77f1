"""Decides which exchange averages a parameter's gradient: the exchange that was made last.

A parameter that is wrapped again belongs to the new optimizer at once, on every rank, even if the
old optimizer still exists. This module removes the old hooks and destroys the old set, because the
garbage collectors of the ranks would do so at different times.
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
    """The interface of an exchange for its claim."""

    set: Any

    def give_way(self) -> None:
        """Stops the exchange, because another optimizer takes over the parameters."""


class Claim:
    """The hooks and the set of one exchange for its parameters. A claim outlives the exchange and
    never keeps a parameter alive."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = weakref.ref(exchange)
        self.set: GradientSet = exchange.set
        self.hooks: list[Any] = []

    @property
    def open(self) -> bool:
        """True if gradients were handed in and not waited for."""
        return self.set.phase in (c.PHASE_OPEN, c.PHASE_DEFERRED)

    def take_off(self) -> None:
        """Removes the hooks from the parameters."""
        for hook in self.hooks:
            hook.remove()
        self.hooks = []

    def give_way(self, open_somewhere: bool) -> None:
        """Ends the exchange for good, because a new one replaces it. Every rank does so.

        open_somewhere: some rank has handed in gradients, whose exchange waits for all ranks."""
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
            pass  # the step is abandoned in any case; the new set will report the failure
        if self.set.alive:
            world.current().destroy_set(self.set)


# Keys compare by identity, because tensors compare element by element.
_claims: WeakIdKeyDictionary = WeakIdKeyDictionary()


def displace(parameters: Sequence[torch.Tensor], process_set: ProcessSet) -> None:
    """Ends every exchange that has any of these parameters, in the order of the parameters, so that
    ranks agree. Collective if there is such an exchange. ValueError if LocalSteps has one of the
    parameters."""
    _refuse_apart(parameters, "a DistributedOptimizer")
    seen: list[Claim] = []
    for parameter in parameters:
        claim = _claims.get(parameter)
        if claim is not None and claim not in seen:
            seen.append(claim)
    alive = [claim for claim in seen if claim.set.alive]
    if not alive:
        return
    name = f"penstock.displace.{alive[0].set.name}"
    all_open = allgather_object([claim.open for claim in alive], name, process_set)
    for number, claim in enumerate(alive):
        claim.give_way(any(opened[number] for opened in all_open))


def register(claim: Claim, parameters: Sequence[torch.Tensor]) -> None:
    """Notes that the parameters belong to this claim from now on."""
    for parameter in parameters:
        _claims[parameter] = claim


def check_unclaimed(parameters: Sequence[torch.Tensor]) -> None:
    """ValueError if a DistributedOptimizer averages any of these parameters' gradients, or if
    LocalSteps exchanges the parameters."""
    _refuse_apart(parameters, "ddp_hook")
    for parameter in parameters:
        if _is_claimed(parameter):
            raise ValueError(
                "gradients of this model would be averaged twice: by ddp_hook, and by a "
                "DistributedOptimizer that was made of its parameters; give the optimizer "
                "unwrapped, or train without DistributedDataParallel"
            )


def _is_claimed(parameter: torch.Tensor) -> bool:
    claim = _claims.get(parameter)
    return claim is not None and claim.set.alive and claim.exchange() is not None


# ---- parameters of ranks that train apart ----


class Apart(Protocol):
    """Rounds of LocalSteps."""

    alive: bool


# The rounds that exchange a parameter, and the gradients' exchange that a hook of DDP has made.
_apart: WeakIdKeyDictionary = WeakIdKeyDictionary()
_hooked: WeakIdKeyDictionary = WeakIdKeyDictionary()


def keep_apart(parameters: Sequence[torch.Tensor], rounds: Apart) -> None:
    """Notes that the parameters belong to LocalSteps, until its rounds are closed or collected."""
    for parameter in parameters:
        _apart[parameter] = weakref.ref(rounds)


def note_hooked(parameters: Sequence[torch.Tensor], exchange: Exchange) -> None:
    """Notes that ddp_hook averages the gradients of these parameters."""
    for parameter in parameters:
        _hooked[parameter] = weakref.ref(exchange)


def refuse_exchanged(parameters: Sequence[torch.Tensor]) -> None:
    """ValueError if anything of this package exchanges one of these parameters already."""
    _refuse_apart(parameters, "another LocalSteps")
    for parameter in parameters:
        hooked = _hooked.get(parameter)
        exchange = None if hooked is None else hooked()
        is_hooked = exchange is not None and exchange.set is not None and exchange.set.alive
        if is_hooked or _is_claimed(parameter):
            by = "ddp_hook" if is_hooked else "a DistributedOptimizer"
            raise ValueError(
                f"gradients of these parameters are averaged in every step already, by {by}, and "
                "LocalSteps would exchange the parameters too: give LocalSteps the plain optimizer "
                "of a model without DistributedDataParallel"
            )


def _refuse_apart(parameters: Sequence[torch.Tensor], asker: str) -> None:
    for parameter in parameters:
        kept = _apart.get(parameter)
        rounds = None if kept is None else kept()
        if rounds is not None and rounds.alive:
            raise ValueError(
                f"LocalSteps exchanges these parameters already, and {asker} would exchange them "
                "too: use one of both, or call close() of the LocalSteps optimizer, on every rank"
            )
