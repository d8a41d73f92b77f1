"""The exchange of one optimizer's gradients between backward and update: hooks, the protocol of a
step with the core, and the errors of both.

A step of the core: begin (first gradient, or synchronize) -> ready ... -> waits -> end(outcome).
Threads: hooks run on autograd's threads. All other calls come from the thread that drives the
optimizer, while no backward is under way.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from typing import Any, Callable

import torch

from penstock import _library as c
from penstock.common.exceptions import HorovodInternalError
from penstock.common.gradient_set import GradientSet
from penstock.common.process_sets import members_of
from penstock.torch import devices, world
from penstock.torch.checks import Named, check_frozen
from penstock.torch.first_step import (
    compare_again_if_due,
    compare_parameters,
    sparse_everywhere,
)
from penstock.torch.gradients import GradientSlot, Slot
from penstock.torch.idle import IdleSet
from penstock.torch.options import OptimizerOptions
from penstock.torch.outcome import StepOutcome
from penstock.torch.outstanding import Deferral
from penstock.torch.ownership import Claim, displace, register
from penstock.torch.settings import Settings
from penstock.torch.sparse_gradients import SparseSlot

_FAILED_PRECONDITION = 2


class GradientExchange:
    """Hands gradients to a set of the core when backward completes them, and receives the results.

    In the first step no gradient is sent before the ranks have agreed (see first_step). Until then
    gradients are held.
    """

    def __init__(
        self,
        groups: Callable[[], Sequence[dict[str, Any]]],
        named: Named,
        settings: Settings,
    ) -> None:
        self.settings = settings
        self.passes = settings.passes
        self.by_scaler = False  # the gradients were synchronized because a loss scaler read them
        self.deferral: Deferral | None = None
        self.named = named
        self.options = OptimizerOptions(groups, settings.predivide)
        self._error: BaseException | None = None
        self.outcome = StepOutcome()
        self._is_ending = False  # the step is over; the core is notified when the device is done
        self._lock = threading.Lock()
        self._agreed = False
        self._indices: dict[int, int] = {}  # index in the set, by the id of the parameter
        self.sparse: dict[str, int] = {}  # gradients that are exchanged sparse, by name
        self.slots: list[Slot] = []  # in the order of the parameters
        self._slot_at: list[Slot] = []  # the slots by index
        self._frozen: list[tuple[str, torch.Tensor]] = []
        if not settings.process_set.included():
            # This rank exchanges nothing: the optimizer acts like the user's optimizer.
            self.set: GradientSet | IdleSet = IdleSet()
            world.current().note_outside()
            self._claim = Claim(self)
            self._agreed = True
            return
        self.set = self._make_set()
        # The new set is made: its errors were raised before an old set is destroyed.
        parameters = [slot.parameter for slot in self.slots]
        displace(parameters, settings.process_set)
        self._claim = Claim(self)
        register(self._claim, parameters)
        self._claim.hooks = [self._attach(number) for number in range(len(self.slots))]

    def _make_set(self) -> GradientSet:
        """Makes the slots and their set. Collective."""
        settings, groups = self.settings, self.options.groups()
        self.options.of_new_set()
        group_of = {id(p): number for number, group in enumerate(groups) for p in group["params"]}
        taking_part = [(name, p) for name, p in self.named if p.requires_grad]
        self._frozen = [(name, p) for name, p in self.named if not p.requires_grad]
        dense = [(name, p) for name, p in taking_part if name not in self.sparse]
        slots = {
            name: GradientSlot(
                index, name, p, group_of[id(p)], settings.compression, settings.predivide
            )
            for index, (name, p) in enumerate(dense)
        }
        made = world.current().create_set(
            "optimizer",
            devices.with_room([slot.spec() for slot in slots.values()]),
            settings.flags(groups),
            settings.scheme,
            members_of(settings.process_set),
        )
        made.set_passes(self.passes, len(taking_part) - len(dense))
        every: dict[str, Slot] = dict(slots)
        for name, p in taking_part:
            if name in self.sparse:
                every[name] = SparseSlot(
                    len(every), name, p, group_of[id(p)], settings.op,
                    settings.process_set, self.sparse[name],
                )  # fmt: skip
        self._slot_at = list(every.values())
        self.slots = [every[name] for name, _ in taking_part]
        self._indices = {id(slot.parameter): slot.index for slot in slots.values()}
        self.options.tell(made, self._indices)
        self.outcome.follow(made, [slot.parameter for slot in slots.values()])
        return made

    def _attach(self, number: int) -> Any:
        # The parameter must not keep the optimizer alive.
        this = weakref.ref(self)

        def on_gradient(_: torch.Tensor) -> None:
            exchange = this()
            if exchange is not None:
                exchange._on_gradient(exchange.slots[number])

        return self.slots[number].parameter.register_post_accumulate_grad_hook(on_gradient)

    def detach(self) -> None:
        """Removes the hooks from the parameters."""
        self.outcome.unfollow()
        self._claim.take_off()

    def give_way(self) -> None:
        """Stops the exchange, because another optimizer takes over the parameters."""
        if not self.failed:
            self.conclude()
            if self.deferral is not None:
                self.deferral.flush()
        self._error = HorovodInternalError(
            "parameters of this DistributedOptimizer were wrapped later by another "
            "DistributedOptimizer, which now exchanges their gradients; use the later optimizer",
            _FAILED_PRECONDITION,
        )
        self.outcome.unfollow()
        for slot in self.slots:
            slot.forget()

    # ---- backward ----

    def _on_gradient(self, slot: Slot) -> None:
        if self.deferral is not None and self.deferral.outstanding:
            self.deferral.check_unused(slot)
        gradient = slot.parameter.grad
        assert gradient is not None and not gradient.requires_grad, (
            f"gradient {slot.name} records history (create_graph=True), which cannot be averaged "
            "over ranks"
        )
        if self.set.is_staged:
            devices.refuse_capture()
        try:
            todo = slot.came(self.set)
        except AssertionError as error:
            raise AssertionError(
                f"{error} Where several checkpoints share a layer, one backward computes its "
                "gradient several times: call torch.utils.checkpoint.checkpoint with "
                "use_reentrant=False."
            ) from None
        except Exception as error:  # noqa: BLE001 - raised by raise_error on the user's thread
            self._error = self._error or error
            return
        if todo == c.GRADIENT_HELD:
            slot.note()
        elif todo in (c.GRADIENT_BEGIN, c.GRADIENT_HAND_IN):
            self._submit(slot, todo == c.GRADIENT_BEGIN)

    def _submit(self, slot: Slot, begins: bool) -> None:
        """Hands a gradient in. Keeps errors for synchronize(), because an exception on autograd's
        threads could get lost."""
        if self._error is not None:
            return
        try:
            if begins:
                self.begin()
            self._check_sparse(slot)
            slot.submit(self.set)
        except Exception as error:  # noqa: BLE001 - as above
            self._error = error

    def _check_sparse(self, slot: Slot) -> None:
        gradient = slot.parameter.grad
        if gradient is None or not gradient.is_sparse or isinstance(slot, SparseSlot):
            return
        if not self.settings.sparse_as_dense:
            raise ValueError(
                f"gradient {slot.name} is sparse, but was dense or missing on every rank in the "
                "first step; pass sparse_as_dense=True to DistributedOptimizer"
            )

    def raise_error(self) -> None:
        """Raises the error of a hook or of an earlier call. The step is lost, and the error stays
        until `abandon`."""
        if self._error is not None:
            raise self._error

    def lose(self, error: BaseException) -> None:
        """Notes that a wait of another module has failed: the step is lost, as after an error of a
        hook."""
        self._error = self._error or error

    # ---- the first step ----

    def _agree(self) -> None:
        """Runs before the first gradient is sent: the ranks compare their parameters and agree
        which gradients are sparse."""
        found = {
            slot.name: slot.parameter.grad.sparse_dim()
            for slot in self.slots
            if slot.parameter.grad is not None and slot.parameter.grad.is_sparse
        }
        if self.settings.process_set.size() != 1:
            compare_parameters(self.set, self.named, self.settings.check_parameters)
            found = sparse_everywhere(self.set.name, found, self.settings.process_set)
        if self.settings.sparse_as_dense:
            for slot in self.slots:
                if isinstance(slot, GradientSlot):
                    slot.sparse_dim = found.get(slot.name)
        elif any(name not in self.sparse for name in found):
            self.leave_out({**self.sparse, **found})
        self._agreed = True

    def leave_out(self, sparse: dict[str, int]) -> None:
        """Makes a new set without these gradients, which are exchanged sparse from now on.
        Collective, between two steps. The state of compression is lost."""
        self.conclude()
        noted = {slot.name: slot for slot in self.slots}
        self.sparse = dict(sparse)
        world.current().destroy_set(self.set)
        self.set = self._claim.set = self._make_set()
        for slot in self.slots:
            old = noted[slot.name]
            slot.given, slot.version = old.given, old.version
        if self.deferral is not None:
            self.deferral.slots_changed()

    # ---- the step ----

    def begin(self) -> None:
        """Opens a step if none is open. A synchronized step ends first, with the observed
        outcome."""
        with self._lock:
            if self.phase == c.PHASE_OPEN:
                return
            if self.set.is_staged:
                devices.refuse_capture()
            if self.deferral is not None:
                self.deferral.settle()
            self.end()
            compare_again_if_due(self.set, self.named, self.settings.check_parameters)
            self.options.tell(self.set, self._indices)
            self.options.tell_scale(self.set)
            self.by_scaler = False
            self.outcome.begin()

    def close_step(self) -> None:
        """Hands in the gradients that backward did not complete, so that all ranks take part in all
        gradients.

        AssertionError if the program has changed gradients during their exchange."""
        self.raise_error()
        check_frozen(self._frozen)
        if self.deferral is not None:
            # Apply the last step's updates of parameters that this step's forward did not use.
            self.deferral.flush()
        for slot in self.slots:
            slot.check_untouched()
        try:
            if not self._agreed:
                self._agree()
            self.begin()
            for index in self.set.rest():
                slot = self._slot_at[index]
                if slot.parameter.grad is None:
                    slot.submit_absent(self.set)
                else:
                    self._check_sparse(slot)
                    slot.submit(self.set)
        except Exception as error:
            self._error = error
            raise

    @torch.no_grad()
    def synchronize(self) -> None:
        """Waits until every gradient holds its result. Does nothing if every gradient holds it
        already.

        Raises the errors of hooks, and HorovodInternalError if a rank failed or ranks disagree.
        """
        self.raise_error()
        if self.phase == c.PHASE_SYNCHRONIZED and not self.touched:
            return
        self.close_step()
        try:
            if not self.set.is_staged:
                self.set.wait_all()
            for slot in self.slots:
                if self.set.is_staged or isinstance(slot, SparseSlot):
                    slot.wait(self.set)
        except HorovodInternalError as error:
            self._error = error
            raise
        for slot in self.slots:
            slot.finish()
            if slot.parameter.grad is not slot.gradient:
                slot.parameter.grad = slot.gradient
            slot.gradient = slot.given = None
        self.outcome.landed()

    def end(self, outcome: int = c.STEP_AS_SEEN) -> None:
        """Ends a synchronized or deferred step in the core. Does nothing if there is no such
        step."""
        self.conclude()
        if self.phase in (c.PHASE_SYNCHRONIZED, c.PHASE_DEFERRED):
            self.outcome.end(outcome)

    def end_of_update(self) -> None:
        """Ends the step after the optimizer's step, like `end`. If the outcome is still on a
        device, the core is notified later, by the next call that needs it."""
        if self.outcome.is_told:
            self.end()
        elif self.phase == c.PHASE_SYNCHRONIZED:
            self._is_ending = True

    def conclude(self) -> None:
        """Notifies the core of the outcome of the last step, if the core has not received it."""
        if self._is_ending:
            self.outcome.end(c.STEP_AS_SEEN)
            self._is_ending = False

    def scale_next(self, scale: float) -> None:
        """Sets the loss scale of the next backward. The core receives it when that step begins."""
        if self.under_way:
            raise ValueError(
                "the grad scale was set with gradients in flight; set it before backward"
            )
        self.options.scale_next(scale)

    @property
    def phase(self) -> int:
        """The phase of the step: c.PHASE_IDLE and so on."""
        return c.PHASE_IDLE if self._is_ending else self.set.phase

    @property
    def touched(self) -> bool:
        """True if a backward has run since the last synchronize."""
        return self.set.has_come

    @property
    def under_way(self) -> bool:
        """True while gradients of a step are being exchanged, or are held for the exchange."""
        return self.phase in (c.PHASE_OPEN, c.PHASE_HELD)

    def set_passes(self, passes: int) -> None:
        """Changes the number of backwards in a step; counting starts again."""
        self.passes = passes
        self.set.set_passes(passes, len(self.sparse))

    @property
    def failed(self) -> bool:
        """True after an error, until `abandon`: the step under way is lost."""
        return self._error is not None

    def restart(self) -> None:
        """Drops gradients that were handed in and forgets their step. Every rank must call it."""
        for slot in self.slots:
            slot.given = None  # skip check_untouched: the results are dropped
        if self.phase == c.PHASE_OPEN:
            self.synchronize()
        self.outcome.discard()
        self._is_ending = False
        self.set.step_restart()

    def abandon(self) -> None:
        """Forgets the step and the error after a failure. The core's set must then be loaded or
        reset."""
        self._error = None
        self._is_ending = False
        self.outcome.drop()
        self.set.step_restart()
        for slot in self.slots:
            slot.forget()
