"""The gradients of one optimizer between backward and update: hooks, the step protocol with the
core, and its errors.

A step of the core: begin (first gradient, or synchronize) -> ready ... -> waits -> end(applied).
Threads: hooks run on autograd's threads; everything else on the thread that drives the optimizer,
while no backward is under way.
"""

from __future__ import annotations

import enum
import threading
import weakref
from collections.abc import Sequence
from typing import Any, Callable, Protocol

import torch

from penstock import _library as c
from penstock.common.exceptions import HorovodInternalError
from penstock.torch import world
from penstock.torch.checks import Named, has_momentum
from penstock.torch.gradients import GradientSlot
from penstock.torch.mpi_ops import Sum


class Phase(enum.Enum):
    """Where the core's step stands."""

    IDLE = "idle"  # no step is open
    OPEN = "open"  # gradients may be handed in
    SYNCHRONIZED = "synchronized"  # all results have arrived; the core waits for the outcome
    DEFERRED = "deferred"  # the update is promised; results arrive until the next forward ends


class Deferral(Protocol):
    """What the exchange asks of DeferredUpdates."""

    outstanding: dict[int, GradientSlot]

    def settle(self) -> None:
        """Before the first gradient of a step: the results of the one before arrive, and it
        ends."""

    def flush(self) -> None:
        """Applies every outstanding update."""

    def check_unused(self, slot: GradientSlot) -> None:
        """Raises when `slot` has an outstanding update."""


class GradientExchange:
    """Hands gradients to a set of the core as backward completes them, and gets the results
    back."""

    def __init__(
        self,
        groups: Callable[[], Sequence[dict[str, Any]]],
        named: Named,
        compression: Any,
        passes: int,
        op: int,
        predivide: float,
        sparse_as_dense: bool,
        scheme: str,
    ) -> None:
        self.passes = passes
        self.phase = Phase.IDLE
        self.touched = False  # a backward has run since the last synchronize
        self.deferral: Deferral | None = None
        self._groups = groups  # asked each time, for load_state_dict makes new ones
        self._sparse_as_dense = sparse_as_dense
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._rates: dict[int, float] = {}
        self._scale: float | None = None
        group_of = {id(p): number for number, group in enumerate(groups()) for p in group["params"]}
        self.slots: list[GradientSlot] = [
            GradientSlot(index, name, p, group_of[id(p)], compression, predivide)
            for index, (name, p) in enumerate((name, p) for name, p in named if p.requires_grad)
        ]
        for slot in self.slots:
            slot.rewind(passes)
        flags = c.SET_TELLS_OUTCOME | c.SET_DEFERRED_UPDATE
        flags |= c.SET_OPTIMIZER_MOMENTUM if has_momentum(groups()) else 0
        flags |= c.SET_SUM if op == Sum else 0
        self.set = world.current().create_set(
            "optimizer", [slot.spec() for slot in self.slots], flags, scheme
        )
        self._tell_rates()
        self._hooks = [self._attach(slot) for slot in self.slots]

    def _attach(self, slot: GradientSlot) -> Any:
        # The parameter must not keep the optimizer alive.
        this = weakref.ref(self)

        def on_gradient(_: torch.Tensor) -> None:
            exchange = this()
            if exchange is not None:
                exchange._on_gradient(slot)

        return slot.parameter.register_post_accumulate_grad_hook(on_gradient)

    def detach(self) -> None:
        """Takes the hooks off the parameters."""
        for hook in self._hooks:
            hook.remove()
        self._hooks = []

    # ---- backward ----

    def _on_gradient(self, slot: GradientSlot) -> None:
        if slot.passes_left <= 0:
            raise AssertionError(
                "Gradients were computed more than backward_passes_per_step times before call to "
                "step(). "
                "Increase backward_passes_per_step to accumulate gradients locally."
            )
        if self.deferral is not None and self.deferral.outstanding:
            self.deferral.check_unused(slot)
        gradient = slot.parameter.grad
        assert gradient is not None and not gradient.requires_grad, (
            f"gradient {slot.name} records history (create_graph=True), which cannot be averaged "
            "over ranks"
        )
        self.touched = True
        slot.passes_left -= 1
        if slot.passes_left == 0:
            self._submit(slot)

    def _submit(self, slot: GradientSlot) -> None:
        """Hands a gradient in. Errors are kept for synchronize(): autograd's threads are no place
        to lose them."""
        if self._error is not None:
            return
        try:
            if self.phase is not Phase.OPEN:
                self.begin()
            self._make_dense(slot)
            slot.submit(self.set)
        except Exception as error:  # noqa: BLE001 - raised by raise_error on the user's thread
            self._error = error

    def _make_dense(self, slot: GradientSlot) -> None:
        gradient = slot.parameter.grad
        if gradient is None or not gradient.is_sparse:
            return
        if not self._sparse_as_dense:
            raise ValueError(
                f"gradient {slot.name} is sparse, expected a dense one; pass "
                "sparse_as_dense=True to DistributedOptimizer"
            )
        slot.parameter.grad = gradient.to_dense()

    def raise_error(self) -> None:
        """Raises what went wrong in hooks. The error stays until `restart`: the step is lost."""
        if self._error is not None:
            raise self._error

    # ---- the step ----

    def begin(self) -> None:
        """Opens a step if none is open. A step that was synchronized but never applied ends as
        skipped."""
        if self.phase is Phase.OPEN:
            return
        with self._lock:
            if self.phase is Phase.OPEN:
                return
            if self.phase is Phase.DEFERRED and self.deferral is not None:
                self.deferral.settle()
            elif self.phase is Phase.SYNCHRONIZED:
                self.end(applied=False)
            self._tell_rates()
            if self._scale is not None:
                self.set.set_grad_scale(self._scale)
                self._scale = None
            self.phase = Phase.OPEN

    def _tell_rates(self) -> None:
        changed = {}
        for number, group in enumerate(self._groups()):
            rate = float(group["lr"]) if "lr" in group else None
            if rate is not None and self._rates.get(number) != rate:
                changed[number] = self._rates[number] = rate
        if changed:
            for slot in self.slots:
                if slot.group in changed:
                    self.set.set_learning_rate(slot.index, changed[slot.group])

    def close_step(self) -> None:
        """Hands in what backward did not complete, so that all ranks take part in all gradients."""
        self.raise_error()
        if self.deferral is not None:
            # Updates of the step before, for parameters that this step's forward did not use.
            self.deferral.flush()
        self.begin()
        try:
            for slot in self.slots:
                if slot.submitted:
                    continue
                if slot.parameter.grad is None:
                    slot.submit_absent(self.set)
                else:
                    self._make_dense(slot)
                    slot.submit(self.set)
        except Exception as error:
            self._error = error
            raise

    @torch.no_grad()
    def synchronize(self) -> None:
        """Waits until every gradient holds its result. Does nothing when that is so already.

        Errors: what hooks met; HorovodInternalError when a rank failed or ranks disagree.
        """
        self.raise_error()
        if self.phase is Phase.SYNCHRONIZED and not self.touched:
            return
        self.close_step()
        try:
            if self.set.defers():
                self.set.backward_end()
                self.set.flush()
            self.set.wait_all()
        except HorovodInternalError as error:
            self._error = error
            raise
        for slot in self.slots:
            slot.finish()
            slot.gradient = None
        self.rewind()
        self.phase = Phase.SYNCHRONIZED

    def rewind(self) -> None:
        """Backward is over: gradients count from the start again."""
        self.touched = False
        for slot in self.slots:
            slot.rewind(self.passes)

    def end(self, applied: bool) -> None:
        """Tells the core the outcome of a synchronized or deferred step; nothing when there is
        none."""
        if self.phase in (Phase.SYNCHRONIZED, Phase.DEFERRED):
            self.phase = Phase.IDLE
            self.set.step_end(applied)

    def scale_next(self, scale: float) -> None:
        """The loss scale of the next backward; the core takes it when that step begins."""
        if not scale > 0:
            raise ValueError(f"grad scale is {scale}, expected a number above 0")
        if self.phase is Phase.OPEN:
            raise ValueError(
                "the grad scale was set with gradients under way; set it before backward"
            )
        self._scale = scale

    @property
    def failed(self) -> bool:
        """True after an error, until `abandon`: the step under way is lost."""
        return self._error is not None

    def restart(self) -> None:
        """Drops gradients that were handed in: the step they belong to ends as skipped. On every
        rank alike."""
        if self.phase is Phase.OPEN:
            self.synchronize()
        self.end(applied=False)
        self.rewind()

    def abandon(self) -> None:
        """After a failure: forgets the step and the error. The core's set must be loaded or reset
        next."""
        self._error = None
        self.phase = Phase.IDLE
        for slot in self.slots:
            slot.gradient = slot.wire = slot.context = None
        self.rewind()


def scheme_text(scheme: str | None) -> str:
    """The TOML text of a scheme argument: text as it is, or the contents of a file that ends in
    .toml."""
    if scheme is None:
        return ""
    if "\n" not in scheme and scheme.endswith(".toml"):
        with open(scheme, encoding="utf-8") as file:
            return file.read()
    return scheme
