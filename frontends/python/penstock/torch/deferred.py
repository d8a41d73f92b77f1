"""Deferred updates: communication continues into the next forward, and every module's parameters
are updated just before the module uses them.

Source: Zhang et al., "DeAR: Accelerating Distributed Deep Learning with Fine-Grained All-Reduce
Pipelining", ICDCS 2023.

After step() the parameters still have their old values. The update of a parameter is applied when a
forward reaches the module that owns it, or by flush(), with the options (such as learning rates) of
the moment of step(). While an update is outstanding, this module keeps its gradient and
`parameter.grad` is None, so zero_grad() cannot touch it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Callable

import torch
from torch.nn.modules.module import register_module_forward_pre_hook

from penstock.torch import devices, outstanding, world
from penstock.torch.gradients import Slot

if TYPE_CHECKING:
    from penstock.torch.exchange import GradientExchange


def _flush_before_state_dict(module: torch.nn.Module, prefix: str, keep_vars: bool) -> None:
    # A function of the module's top level, so that models that carry it can be pickled.
    del module, prefix, keep_vars
    outstanding.flush_all()


class DeferredUpdates:
    """The outstanding updates of one optimizer.

    apply(groups): takes the optimizer's own step on these parameter groups only.
    """

    def __init__(
        self,
        exchange: GradientExchange,
        groups: Callable[[], Sequence[dict[str, Any]]],
        apply: Callable[[list[dict[str, Any]]], None],
    ) -> None:
        self._exchange = exchange
        self._groups = groups
        self._apply_groups = apply
        self._options: list[dict[str, Any]] = []  # options of each group at step()
        self.outstanding: dict[
            int, Slot
        ] = {}  # not applied yet, in the order of registration
        self._under_way: dict[
            int, Slot
        ] = {}  # outstanding updates whose results have not arrived
        self._slot_of = {id(slot.parameter): slot for slot in exchange.slots}
        self._slots_of_module: weakref.WeakKeyDictionary[
            torch.nn.Module, tuple[Slot, ...]
        ] = weakref.WeakKeyDictionary()
        # Modules that have parameters of the exchange, directly or in a submodule.
        self._holders: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._owned: set = set()  # gradients whose module has been seen in a forward
        self._handles: list[Any] = []
        exchange.deferral = self

    def slots_changed(self) -> None:
        """Replaces the slots after the exchange has made new ones for its parameters. No update may
        be outstanding."""
        self._slot_of = {id(slot.parameter): slot for slot in self._exchange.slots}
        self._owned.clear()
        for module, slots in list(self._slots_of_module.items()):
            own = tuple(self._slot_of[id(slot.parameter)] for slot in slots)
            self._slots_of_module[module] = own
            self._owned.update(slot.index for slot in own)

    def watch(self) -> None:
        """Starts to observe forwards. Further calls do nothing."""
        if self._handles:
            return
        outstanding.live.add(self)
        this = weakref.ref(self)

        def before_forward(module: torch.nn.Module, _: Any) -> None:
            updates = this()
            if updates is not None:
                updates._before_forward(module)

        self._handles.append(register_module_forward_pre_hook(before_forward))
        weakref.finalize(self, _remove, self._handles)

    def unwatch(self) -> None:
        """Removes all hooks."""
        outstanding.live.discard(self)
        _remove(self._handles)

    # ---- the step ----

    @torch.no_grad()
    def defer(self) -> None:
        """Promises the update. step() calls it instead of waiting, when backward is over.

        A parameter that no observed module owns (code uses its raw tensor, or a parent module uses
        it) is updated at once, because no hook would announce its next use.
        """
        exchange = self._exchange
        self.watch()
        exchange.close_step()
        exchange.set.backward_end()
        self._options = [
            {key: _frozen(value) for key, value in group.items() if key != "params"}
            for group in self._groups()
        ]
        for slot in exchange.slots:
            slot.parameter.grad = slot.given = None  # the slot keeps it
            self.outstanding[slot.index] = self._under_way[slot.index] = slot
        self._apply([index for index in self.outstanding if index not in self._owned])

    def check_unused(self, slot: Slot) -> None:
        """RuntimeError if this parameter's update is still outstanding. Called when a new gradient
        comes for it."""
        if slot.index in self.outstanding:
            raise RuntimeError(
                f"parameter {slot.name} was used in a forward without the forward of its module, "
                "so with a stale value: its "
                "deferred update is still outstanding; call optimizer.flush() before that use, "
                "or choose a scheduler that "
                f"does not defer updates"
            )

    @torch.no_grad()
    def flush(self) -> None:
        """Applies all outstanding updates."""
        if self.outstanding:
            self._apply(list(self.outstanding))

    def forget(self) -> None:
        """Drops outstanding updates after a failure."""
        for slot in self.outstanding.values():
            slot.gradient = None
        self.outstanding.clear()
        self._under_way.clear()

    # ---- the next forward ----

    def _before_forward(self, module: torch.nn.Module) -> None:
        slots = self._slots_of_module.get(module)
        if slots is None:
            slots = self._adopt(module)
        if not self.outstanding:
            return
        if not module.training or not torch.is_grad_enabled():
            if module in self._holders:  # evaluation may use submodules without their forward
                self.flush()
            return
        wanted = [slot.index for slot in slots if slot.index in self.outstanding]
        if wanted:
            self._apply(wanted)

    def _adopt(self, module: torch.nn.Module) -> tuple[Slot, ...]:
        own = (p for p in module._parameters.values() if p is not None)
        slots = tuple(self._slot_of[id(p)] for p in own if id(p) in self._slot_of)
        self._slots_of_module[module] = slots
        if any(id(parameter) in self._slot_of for parameter in module.parameters()):
            self._holders.add(module)
        if slots:
            self._owned.update(slot.index for slot in slots)
            self._handles.append(module.register_state_dict_pre_hook(_flush_before_state_dict))
        return slots

    # ---- results and updates ----

    def _arrive(self, indices: Sequence[int]) -> None:
        """Waits for results. With the last result the core ends the step."""
        for index in indices:
            slot = self._under_way.get(index)
            if slot is not None:
                slot.wait(self._exchange.set)
                slot.finish()
                del self._under_way[index]

    @torch.no_grad()
    def settle(self) -> None:
        """Waits for all results before the first gradient of the next step, and thereby ends the
        last step. The remaining parameters are updated when backward is over, because autograd
        still needs the values that the forward used."""
        self._arrive(list(self._under_way))

    @torch.no_grad()
    def _apply(self, indices: Sequence[int]) -> None:
        if not indices:
            return
        if any(not self.outstanding[index].parameter.is_cpu for index in indices):
            devices.refuse_capture_of_updates()
        self._arrive(indices)
        parameters: dict[int, list[torch.Tensor]] = {}
        newer = []
        for index in indices:
            slot = self.outstanding.pop(index)
            newer.append((slot.parameter, slot.parameter.grad))
            slot.parameter.grad, slot.gradient = slot.gradient, None
            parameters.setdefault(slot.group, []).append(slot.parameter)
        outcome = self._exchange.outcome
        outcome.muted = True  # the update does not belong to the step under way
        try:
            self._apply_groups(
                [
                    dict(self._options[group], params=members)
                    for group, members in parameters.items()
                ]
            )
        finally:
            outcome.muted = False
            for parameter, gradient in newer:
                parameter.grad = gradient


def _frozen(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def _remove(handles: list[Any]) -> None:
    for handle in handles:
        handle.remove()
    handles.clear()


@world.before_shutdown
def _flush_at_shutdown(aborted: bool) -> None:
    if not aborted:
        outstanding.flush_all()
    for updates in list(outstanding.live):
        updates.unwatch()
