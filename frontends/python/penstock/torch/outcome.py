"""Whether a step was applied, without a word from the user: seen by the optimizers that step on the
parameters of a set.

torch calls a hook before every optimizer's step, whoever wraps the optimizer. A step is applied
when an optimizer stepped after its backward; a loss scaler that found an infinity leaves that out.
"""

from __future__ import annotations

import sys
import weakref
from types import FrameType
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook

from penstock.common.gradient_set import GradientSet
from penstock.torch import devices
from penstock.torch.loss_scaling import asked_by_scaler, warn_of_untold_scale

if TYPE_CHECKING:
    from penstock.torch.bucket_exchange import BucketExchange

_live: weakref.WeakSet[StepOutcome] = weakref.WeakSet()


class StepOutcome:
    """Follows the optimizers of one exchange."""

    def __init__(self, exchange: BucketExchange) -> None:
        self._exchange = weakref.ref(exchange)
        self._optimizers: list[weakref.ref[torch.optim.Optimizer]] = []
        self._strangers: weakref.WeakSet[torch.optim.Optimizer] = weakref.WeakSet()
        self._stepped = False
        # What a loss scaler found for optimizers that leave a step out by themselves: True, it has.
        self._found: list[Callable[[], bool]] = []
        self._kept = False  # results were still in p.grad when the next backward came
        self._looked = False
        self._void_before = 0
        self._handle: Any = None

    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers that were seen."""
        alive = [optimizer() for optimizer in self._optimizers]
        return [group for one in alive if one is not None for group in one.param_groups]

    def begin(self, gradients: GradientSet) -> None:
        """A step opens."""
        self._stepped = self._kept = self._looked = False
        self._found.clear()
        self._void_before = gradients.counters()["void_buckets"]

    def applied(self, gradients: GradientSet) -> bool:
        """Of the step that ends, all of whose results are there; the same on every rank.

        Before any optimizer was seen (parameters are changed in another way) it was if all
        gradients were finite."""
        if self._optimizers:
            return self._has_stepped() or self._kept
        return gradients.counters()["void_buckets"] == self._void_before

    def watch(self, parameter: torch.Tensor) -> None:
        """From now on; `parameter` is one that backward reaches early."""
        this = weakref.ref(self)

        def before_accumulation(_: torch.Tensor) -> None:
            outcome = this()
            if outcome is not None:
                outcome._look_at(parameter.grad)

        self._handle = parameter.register_hook(before_accumulation)
        _watch_optimizers()
        _live.add(self)

    def unwatch(self) -> None:
        """Follows no optimizer any more."""
        _live.discard(self)
        if self._handle is not None:
            self._handle.remove()

    def _look_at(self, gradient: torch.Tensor | None) -> None:
        # Two backwards without a step between: the result of the first was used if it is still
        # there, and not if zero_grad() has thrown it away.
        exchange = self._exchange()
        if exchange is None or not exchange.open or self._looked or self._has_stepped():
            return
        self._looked = True
        self._kept = gradient is not None and bool(gradient.count_nonzero())

    def before_step(self, optimizer: torch.optim.Optimizer) -> None:
        """An optimizer is about to step. HorovodInternalError where it has a momentum that a memory
        of the set has, too."""
        exchange = self._exchange()
        if exchange is None or exchange.set is None or not exchange.set.alive:
            return
        if not self._knows(optimizer, exchange):
            return
        if _scaler_above(sys._getframe(2)):
            warn_of_untold_scale(exchange.options, exchange.set, "state")
        # Fused optimizers get the scaler's finding and leave the step out by themselves.
        found_inf = getattr(optimizer, "found_inf", None)
        if found_inf is None:
            self._stepped = True
        else:
            # On a device nobody knows it yet, and this is no moment to wait for the device.
            self._found.append(devices.later(found_inf))

    def _has_stepped(self) -> bool:
        self._stepped = self._stepped or any(not found_inf() for found_inf in self._found)
        self._found.clear()
        return self._stepped

    def _knows(self, optimizer: torch.optim.Optimizer, exchange: BucketExchange) -> bool:
        if any(one() is optimizer for one in self._optimizers):
            return True
        if optimizer in self._strangers:
            return False
        groups = optimizer.param_groups
        if not any(id(p) in exchange.indices for group in groups for p in group["params"]):
            self._strangers.add(optimizer)
            return False
        self._optimizers.append(weakref.ref(optimizer))
        assert exchange.set is not None
        exchange.options.tell(exchange.set, exchange.indices)
        return True


def _scaler_above(frame: FrameType | None) -> bool:
    while frame is not None:
        if asked_by_scaler(frame):
            scaler = frame.f_locals.get("self")
            return scaler is not None and scaler.is_enabled()
        frame = frame.f_back
    return False


_watching = False


def _watch_optimizers() -> None:
    global _watching
    if not _watching:
        _watching = True
        register_optimizer_step_pre_hook(_before_step)


def _before_step(optimizer: torch.optim.Optimizer, _: Any, __: Any) -> None:
    for outcome in list(_live):
        outcome.before_step(optimizer)
