"""What became of a step's results: used by an optimizer, or thrown away by the user.

The core decides that; it is told here what is seen, by every door (optimizer, DDP hook, FSDP2):
when optimizers of the parameters begin and end a step, which torch says by hooks whoever wraps
them, and which gradients hold their results no more. A result is gone where `p.grad` is None, or
where it was changed or replaced and is all zero: gradients are read for zeros only there. One that
was replaced by other numbers counts as made from the result.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterable, Sequence
from typing import Any, Callable

import torch
from torch.optim import Optimizer

from penstock import _library as c
from penstock.common.exceptions import HorovodInternalError
from penstock.common.gradient_set import GradientSet
from penstock.torch import devices, living_optimizers
from penstock.torch.gone import Gone

_live: weakref.WeakSet[StepOutcome] = weakref.WeakSet()


class StepOutcome:
    """Tells one set of the core what became of its steps: `begin`, `landed` when the results are in
    the gradients, `end`. Without a set, where `follow` was not called, it does nothing.

    on_step: called with each optimizer of the parameters before it steps; a bound method, which is
    held weakly.
    """

    def __init__(self, on_step: Callable[[Optimizer], None] | None = None) -> None:
        _watch_optimizers()
        self._on_step = None if on_step is None else weakref.WeakMethod(on_step)
        self._set: GradientSet | None = None
        self._parameters: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}  # of the parameters, by id
        self._agree: Callable[[bool], bool] | None = None
        self._hooks: list[Any] = []
        weakref.finalize(self, _remove, self._hooks)
        self._lock = threading.Lock()
        # Optimizers, with the numbers of their parameters, and how many these were of all.
        self._known: weakref.WeakKeyDictionary[Optimizer, tuple[int, list[int]]]
        self._known = weakref.WeakKeyDictionary()
        self._group_of: dict[int, int] = {}  # of parameters with an optimizer: which one
        self._searched = False
        self._untold: set[int] = set()  # whose optimizer was found, and has not stepped
        self.stepped = False  # an optimizer has, since
        self.muted = False  # updates of an earlier step are being made
        self._serial = 0  # of steps
        self._begun: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        # Per parameter, what held its result when it was there; None: the result never got there.
        self._held: list[tuple[weakref.ref[torch.Tensor], int] | None] = []
        self._reads_results = False  # where they were zero when they came
        self._came_zero: Callable[[], list[bool]] | None = None
        self._has_landed = False
        self._may_be_gone = False  # a look may tell something
        self._looked = False
        self._looked_in = 0  # the backward in which that was
        self._postponed: list[Callable[[], None]] = []  # optimizers that go on in a closure
        self._facts: list[Callable[[], None]] = []  # seen on a device, which was not waited for

    # ---- whom it follows ----

    def follow(
        self,
        gradients: GradientSet,
        parameters: Sequence[torch.Tensor],
        by_hooks: bool = True,
        agree: Callable[[bool], bool] | None = None,
    ) -> None:
        """From now on, instead of what it followed before. parameters[i] gets gradient i.

        by_hooks: look when a backward reaches a parameter, before it adds anything. agree: the
        parameters share all gradients of the set, and ranks hold other parts of them: what is
        found all zero here is asked of the others by this."""
        self.unfollow()
        self._set = gradients
        self._parameters = list(parameters)
        self._numbers = {id(one): number for number, one in enumerate(parameters)}
        self._agree = agree
        self._known.clear()
        self._group_of.clear()
        self._untold.clear()
        self._searched = False
        if by_hooks:
            this = weakref.ref(self)

            def before_accumulation(_: torch.Tensor) -> None:
                outcome = this()
                if outcome is not None and outcome._may_be_gone:
                    outcome.look()

            self._hooks += [one.register_hook(before_accumulation) for one in parameters]
        _live.add(self)
        # Where the first backward comes out of an optimizer's closure.
        for optimizer in list(living_optimizers.inside):
            self.at_optimizer(optimizer, c.OPTIMIZER_BEGINS)

    def unfollow(self) -> None:
        """Follows nothing any more."""
        _live.discard(self)
        _remove(self._hooks)
        self.drop()
        self._set = None

    def drop(self) -> None:
        """There is no step to end."""
        self.stepped = self._has_landed = self._may_be_gone = False
        self._facts.clear()
        self._postponed.clear()
        self._held = []

    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers that were seen."""
        return [
            group
            for optimizer, (_, numbers) in list(self._known.items())
            for group in (optimizer.param_groups if numbers else ())
        ]

    # ---- a step ----

    @property
    def is_open(self) -> bool:
        """A step has begun, and its end was not told."""
        return self._set is not None and self._set.phase >= c.PHASE_OPEN

    def begin(self) -> None:
        """A step opens, also in the core."""
        if self._set is None:
            return
        self._serial += 1
        self.drop()
        self._looked, self._looked_in = False, 0
        self._set.step_begin()

    def landed(self, elsewhere: Iterable[int] = ()) -> None:
        """All results are in the gradients, but those of parameters `elsewhere`."""
        if self._set is None or not self.is_open:
            return
        gradients = [one.grad for one in self._parameters]
        self._held = [None if g is None else (weakref.ref(g), g._version) for g in gradients]
        for number in elsewhere:
            self._held[number] = None
        self._came_zero = None
        if self._reads_results and self._agree is None:
            nothing = torch.zeros(0)
            self._came_zero = devices.zeros_later([nothing if g is None else g for g in gradients])
        self._has_landed = self._may_be_gone = True

    def look(self) -> None:
        """Before a backward adds to gradients, or between two: which results are gone?"""
        backward = torch._C._current_graph_task_id()
        with self._lock:
            if not self._may_be_gone or (backward == self._looked_in and backward != -1):
                return
            self._looked_in = backward
            self.settle()
            is_alive = self._set is not None and self._set.alive
            if not is_alive or not (self._looked or self._set.outcome_open()):
                self._may_be_gone = False  # an optimizer has used them all
                self._resume()
                return
            self._looked = True
            self._search()
            gone = self._gone(range(len(self._parameters)))
            self._tell(lambda: self._tell_gone(gone))
            self._resume()

    def is_decided(self) -> bool:
        """Whether to end the step tells no more than is known: an optimizer has stepped, or there
        is none that could."""
        if not self.stepped and self._set is not None and self.is_open:
            self._search()
            return not self._group_of
        return True

    def end(self, outcome: int = c.STEP_AS_SEEN) -> None:
        """Ends the step in the core. What the device has not told yet is waited for."""
        if self._set is None or not self.is_open:
            return
        if outcome == c.STEP_AS_SEEN and not self._has_landed and not self.stepped:
            outcome = c.STEP_FORGOTTEN  # backward has failed before its end
        if outcome == c.STEP_AS_SEEN:
            self.look()
            self._resume()
            self.settle()
        self._set.step_end(outcome)
        self.drop()

    def discard(self) -> None:
        """Ends the step before the state of the set is replaced, or ends: as seen where an
        optimizer has used it, else it is forgotten."""
        if self.stepped:
            self.end()
            return
        try:
            self.end(c.STEP_FORGOTTEN)
        except HorovodInternalError:
            self.end(c.STEP_APPLIED)  # [runtime] forget = false; what it leaves is replaced

    @property
    def is_told(self) -> bool:
        """False while the core was not told all that was seen: on a device it is known later."""
        return not self._facts

    def settle(self) -> None:
        """Tells the core what was seen of gradients on devices, and waits for them."""
        facts, self._facts = self._facts, []
        for fact in facts:
            fact()

    # ---- optimizers ----

    def at_optimizer(self, optimizer: Optimizer, moment: int, has_closure: bool = False) -> None:
        """An optimizer begins or ends a step. What `on_step` raises comes out of it."""
        if self._set is None or not self._set.alive or self.muted:
            return
        numbers = self._numbers_of(optimizer)
        if not numbers:
            return
        if moment == c.OPTIMIZER_ENDS:
            self._resume()
            self._note(optimizer, numbers, moment)
            return
        on_step = None if self._on_step is None else self._on_step()
        if on_step is not None:
            on_step(optimizer)
        if has_closure and self._has_landed and not self.stepped:
            # The closure may throw away what an earlier backward has left, or add to it.
            self._untold.update(numbers)
            self._postponed.append(lambda: self._note(optimizer, numbers, moment))
        else:
            self._note(optimizer, numbers, moment)

    def _resume(self) -> None:
        postponed, self._postponed = self._postponed, []
        for note in postponed:
            note()

    def _note(self, optimizer: Optimizer, numbers: list[int], moment: int) -> None:
        self._untold.difference_update(numbers)
        begins = moment == c.OPTIMIZER_BEGINS
        is_first = begins or self._begun.get(optimizer) != self._serial
        if begins:
            self._begun[optimizer] = self._serial
        gone = self._gone(numbers) if self._has_landed and is_first else None
        self.stepped = self.stepped or self.is_open
        found_inf = None if begins else getattr(optimizer, "found_inf", None)
        # Fused optimizers get the scaler's finding and leave the step out by themselves.
        left_out = (lambda: False) if found_inf is None else devices.later(found_inf)

        def tell() -> None:
            leaves_out = c.OPTIMIZER_LEAVES_OUT if left_out() else moment
            self._tell_optimizer(numbers, leaves_out, gone)

        self._tell(tell)

    def _numbers_of(self, optimizer: Optimizer) -> list[int]:
        n_all = sum(len(group["params"]) for group in optimizer.param_groups)
        known = self._known.get(optimizer)
        if known is not None and known[0] == n_all:
            return known[1]
        of = self._numbers
        ids = (id(one) for group in optimizer.param_groups for one in group["params"])
        numbers = sorted(of[one] for one in ids if one in of)
        self._known[optimizer] = (n_all, numbers)
        for number in numbers:
            self._group_of.setdefault(number, len(self._known))
        return numbers

    def _search(self) -> None:
        # A GAN's first backward may fill the gradients of an optimizer that has not stepped yet.
        if self._searched or len(self._group_of) == len(self._parameters):
            return
        self._searched = True
        before = set(self._group_of)
        for optimizer in living_optimizers.having(set(self._numbers)):
            self._numbers_of(optimizer)
        self._untold |= self._group_of.keys() - before

    # ---- gradients ----

    def _gone(self, numbers: Sequence[int]) -> Gone:
        gone, doubtful = [], {}
        for place, number in enumerate(numbers):
            held, gradient = self._held[number], self._parameters[number].grad
            is_gone = held is None or gradient is None
            gone.append(is_gone)
            if not is_gone and (held[0]() is not gradient or gradient._version != held[1]):
                doubtful[place] = gradient
        is_zero = self._zeros(list(doubtful.values()))
        came = self._came_zero
        was_zero = None if came is None else lambda: [came()[number] for number in numbers]
        groups = [self._group_of.get(number, -1) for number in numbers]
        return Gone(gone, list(doubtful), is_zero, was_zero, groups)

    def _zeros(self, gradients: list[torch.Tensor]) -> Callable[[], list[bool]]:
        found = devices.zeros_later(gradients)

        def read() -> list[bool]:
            zeros = found()
            # Thrown away, or was nothing sent of it? From the next step on that is looked at.
            self._reads_results = self._reads_results or any(zeros)
            return zeros

        return read

    # ---- the core ----

    def _tell(self, fact: Callable[[], None]) -> None:
        assert self._set is not None
        self._facts.append(fact)
        if not self._set.is_staged:
            self.settle()

    def _tell_optimizer(self, numbers: Sequence[int], moment: int, gone: Gone | None) -> None:
        assert self._set is not None
        if self._agree is None:
            told = None if gone is None else gone.read()
            self._set.optimizer_step(numbers, moment, told)
            return
        # Other ranks may have zeros where this one has none, and are not asked at each step.
        is_gone = gone is not None and not gone.doubtful and all(gone.gone)
        n_gradients = self._set.n_gradients
        self._set.optimizer_step(range(n_gradients), moment, [is_gone] * n_gradients)

    def _tell_gone(self, gone: Gone) -> None:
        assert self._set is not None
        if self._agree is None:
            told = gone.read()
            never_used = [number for number in self._untold if told[number]]
        else:
            # Without those that are doubtful: all the others are gone.
            is_gone = gone.gone.count(True) + len(gone.doubtful) == len(gone.gone)
            if is_gone and gone.doubtful:
                is_gone = self._agree(all(gone.is_zero()))
            told = [is_gone] * self._set.n_gradients
            never_used = list(range(len(told))) if is_gone and self._untold else []
        if never_used:
            self._set.optimizer_step(never_used, c.OPTIMIZER_ENDS, [True] * len(never_used))
        self._set.results_gone(told)
        self._may_be_gone = not all(told)


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
    hooks.clear()


_watching = False


def _watch_optimizers() -> None:
    global _watching
    if not _watching:
        _watching = True
        living_optimizers.watch(_tell_all)


def _tell_all(optimizer: Optimizer, moment: int, has_closure: bool) -> None:
    for outcome in list(_live):
        outcome.at_optimizer(optimizer, moment, has_closure)
