"""Observes the outcome of a step's results: an optimizer has used them, or the user has thrown them
away.

The core decides the outcome. This module reports observations to it, for DistributedOptimizer, the
DDP hook and FSDP2: the begin and the end of every optimizer's step, which torch's hooks report for
wrapped optimizers too, and the gradients that no longer hold their results. A result is gone if
`p.grad` is None, or if it was changed or replaced and is zero in every element. Only gradients that
were changed or replaced are read for zeros. Other numbers in place of a result count as computed
from it.
"""

from __future__ import annotations

import functools
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
from penstock.torch.evaluations import Evaluations
from penstock.torch.gone import Arrived, Gone
from penstock.torch.taken_out import TakenOut

_live: weakref.WeakSet[StepOutcome] = weakref.WeakSet()


class StepOutcome:
    """Reports the outcomes of the steps of one set to the core. The calls of a step are `begin`,
    `landed` when the results are in the gradients, and `end`. Before `follow`, without a set, the
    object does nothing.

    on_step: called with each optimizer of the parameters before it steps. It must be a bound
    method; it is held weakly.
    """

    def __init__(self, on_step: Callable[[Optimizer], None] | None = None) -> None:
        _watch_optimizers()
        self._on_step = None if on_step is None else weakref.WeakMethod(on_step)
        self._set: GradientSet | None = None
        self._parameters: list[torch.Tensor] = []
        self._numbers: dict[int, int] = {}  # number of a parameter, by its id
        self._agree: Callable[[bool], bool] | None = None
        self._absent: frozenset[int] = frozenset()  # gradients that the step has not used
        self._hooks: list[Any] = []
        weakref.finalize(self, _remove, self._hooks)
        self._lock = threading.Lock()
        # Optimizers, with their number of parameters and the numbers of those in the set.
        self._known: weakref.WeakKeyDictionary[Optimizer, tuple[int, list[int]]]
        self._known = weakref.WeakKeyDictionary()
        self._group_of: dict[int, int] = {}  # number of a parameter's optimizer, by parameter
        self._searched = False
        self._untold: set[int] = set()  # parameters whose optimizer is known but has not stepped
        self.stepped = False  # an optimizer has stepped since the step began
        self.muted = False  # updates of an earlier step are being applied
        self._serial = 0  # number of the step
        self._begun: weakref.WeakKeyDictionary[Optimizer, int] = weakref.WeakKeyDictionary()
        self._arrived = Arrived()
        self._taken_out = TakenOut()
        self._evaluations = Evaluations()
        self._has_landed = False
        self._may_be_gone = False  # inspecting the gradients may show something new
        self._looked = False
        self._looked_in = 0  # the backward in which the gradients were inspected
        self._postponed: list[Callable[[], None]] = []  # notes on optimizers that run a closure
        self._facts: list[Callable[[], None]] = []  # observations whose device is not done yet

    # ---- the followed parameters ----

    def follow(
        self,
        gradients: GradientSet,
        parameters: Sequence[torch.Tensor],
        by_hooks: bool = True,
        agree: Callable[[bool], bool] | None = None,
    ) -> None:
        """Follows this set from now on, instead of an earlier one. parameters[i] gets gradient i.

        by_hooks: inspect the gradients when a backward reaches a parameter, before it adds
        anything. agree: given if the parameters share all gradients of the set and ranks hold
        different parts of them. If all parts on this rank are zero, this function finds out whether
        they are zero on all ranks."""
        self.unfollow()
        self._set = gradients
        self._parameters = list(parameters)
        self._arrived.follow(self._parameters)
        self._numbers = {id(one): number for number, one in enumerate(parameters)}
        self._agree = agree
        self._taken_out.clear()
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
        # The first backward may run inside an optimizer's closure.
        for optimizer in list(living_optimizers.inside):
            self.at_optimizer(optimizer, c.OPTIMIZER_BEGINS)

    def unfollow(self) -> None:
        """Stops following the set."""
        _live.discard(self)
        _remove(self._hooks)
        self.drop()
        self._set = None

    def drop(self) -> None:
        """Drops the step: there is no step to end any more."""
        self.stepped = self._has_landed = self._may_be_gone = False
        self._facts.clear()
        self._postponed.clear()
        self._arrived.clear()

    def groups(self) -> list[dict[str, Any]]:
        """The parameter groups of all optimizers that were observed."""
        return [
            group
            for optimizer, (_, numbers) in list(self._known.items())
            for group in (optimizer.param_groups if numbers else ())
        ]

    # ---- a step ----

    @property
    def is_open(self) -> bool:
        """True if a step has begun and the core has not received its end."""
        return self._set is not None and self._set.phase >= c.PHASE_OPEN

    def begin(self, absent: Iterable[int] = ()) -> None:
        """Begins a step, here and in the core. absent: gradients of the set that this step does not
        use, if `agree` was given; the step is forgotten for them."""
        if self._set is None:
            return
        self._serial += 1
        self.drop()
        self._absent = frozenset(absent)
        self._looked, self._looked_in = False, 0
        self._set.step_begin()
        self._evaluations.begins(self._set, map(self._numbers_of, living_optimizers.inside))

    def landed(self, elsewhere: Iterable[int] = ()) -> None:
        """Notes that all results are in the gradients, except the results of parameters
        `elsewhere`."""
        if self._set is None or not self.is_open:
            return
        self._arrived.note(elsewhere, may_read=self._agree is None)
        self._has_landed = self._may_be_gone = True

    def look(self) -> None:
        """Finds lost results and reports them. Call it before a backward adds to gradients, or
        between two backwards."""
        backward = torch._C._current_graph_task_id()
        with self._lock:
            if not self._may_be_gone or (backward == self._looked_in and backward != -1):
                return
            self._looked_in = backward
            self.settle()
            is_alive = self._set is not None and self._set.alive
            if not is_alive or not (self._looked or self._set.outcome_open()):
                self._may_be_gone = False  # an optimizer has used all results
                self._resume()
                return
            self._looked = True
            self._search()
            gone = self._arrived.gone(range(len(self._parameters)), self._group_of)
            self._tell(lambda: self._tell_gone(gone))
            self._resume()

    def is_decided(self) -> bool:
        """True if the outcome of the step is known already: an optimizer has stepped, or no
        optimizer has these parameters."""
        if not self.stepped and self._set is not None and self.is_open:
            self._search()
            return not self._group_of
        return True

    def end(self, outcome: int = c.STEP_AS_SEEN) -> None:
        """Ends the step in the core. Waits for observations that the device has not delivered
        yet."""
        if self._set is None or not self.is_open:
            return
        if outcome == c.STEP_AS_SEEN and not self._has_landed and not self.stepped:
            outcome = c.STEP_FORGOTTEN  # backward failed before its end
        if outcome == c.STEP_AS_SEEN:
            self.look()
            self._resume()
            self.settle()
        if outcome == c.STEP_APPLIED and self._absent:
            everything = self._shared(False)
            self._set.optimizer_step(range(len(everything)), c.OPTIMIZER_ENDS, everything)
            outcome = c.STEP_AS_SEEN
        self._set.step_end(outcome)
        self.drop()

    def discard(self) -> None:
        """Ends the step before the state of the set is replaced or ends. If an optimizer has used
        the step, its outcome is the observed one; otherwise it is forgotten."""
        if self.stepped:
            self.end()
            return
        try:
            self.end(c.STEP_FORGOTTEN)
        except HorovodInternalError:
            self.end(c.STEP_APPLIED)  # [runtime] forget = false; the state is replaced anyway

    @property
    def is_told(self) -> bool:
        """True if the core has received all observations. Those on a device are known later."""
        return not self._facts

    def settle(self) -> None:
        """Waits for the observations of gradients on devices and reports them to the core."""
        facts, self._facts = self._facts, []
        for fact in facts:
            fact()

    # ---- optimizers ----

    def at_optimizer(self, optimizer: Optimizer, moment: int, has_closure: bool = False) -> None:
        """Called when an optimizer begins or ends a step. Passes on exceptions of `on_step`."""
        if self._set is None or not self._set.alive or self.muted:
            return
        numbers = self._numbers_of(optimizer)
        if not numbers:
            return
        if moment == c.OPTIMIZER_ENDS:
            self._resume()
            self._note(optimizer, numbers, moment)
            return
        self._evaluations.optimizer_begins()
        on_step = None if self._on_step is None else self._on_step()
        if on_step is not None:
            on_step(optimizer)
        if has_closure and self._has_landed and not self.stepped:
            # The closure may throw away the results of an earlier backward, or add to them.
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
        gone = self._arrived.gone(numbers, self._group_of) if self._has_landed and is_first else None
        if begins and self._has_landed and self._set is not None:
            self._taken_out.at_step(self._set.name, numbers, filter(self._arrived.is_foreign, numbers))
        self.stepped = self.stepped or self.is_open
        found_inf = None if begins else getattr(optimizer, "found_inf", None)
        # Fused optimizers receive the scaler's result and skip the step themselves.
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

    # ---- the core ----

    def _tell(self, fact: Callable[[], None]) -> None:
        assert self._set is not None
        self._facts.append(fact)
        if not self._set.is_staged:
            self.settle()

    def _tell_optimizer(self, numbers: Sequence[int], moment: int, gone: Gone | None) -> None:
        assert self._set is not None
        if self._agree is None:
            is_gone_of = None if gone is None else gone.read()
            self._set.optimizer_step(numbers, moment, is_gone_of)
            return
        # Other ranks may have zeros where this rank has none; asking them at every step would cost
        # too much.
        is_gone_of = self._shared(gone is not None and not gone.doubtful and all(gone.gone))
        self._set.optimizer_step(range(len(is_gone_of)), moment, is_gone_of)

    def _tell_gone(self, gone: Gone) -> None:
        assert self._set is not None
        if self._agree is None:
            is_gone_of = gone.read()
            never_used = [number for number in self._untold if is_gone_of[number]]
        else:
            # True if all gradients that are not doubtful are gone.
            is_gone = gone.gone.count(True) + len(gone.doubtful) == len(gone.gone)
            if is_gone and gone.doubtful:
                is_gone = self._agree(all(gone.is_zero()))
            is_gone_of = self._shared(is_gone)
            never_used = list(range(len(is_gone_of))) if is_gone and self._untold else []
        if never_used:
            self._set.optimizer_step(never_used, c.OPTIMIZER_ENDS, [True] * len(never_used))
        self._may_be_gone = not all(is_gone_of)
        used = self._used_elsewhere(is_gone_of)
        if used:
            self._set.optimizer_step(used, c.OPTIMIZER_ENDS)
        self._set.results_gone(is_gone_of)

    def _shared(self, is_gone: bool) -> list[bool]:
        """Whether each gradient of a set that the parameters share is gone."""
        assert self._set is not None
        return [is_gone or number in self._absent for number in range(self._set.n_gradients)]

    def _used_elsewhere(self, is_gone_of: list[bool]) -> list[int]:
        """The gradients of the set that are gone because the script uses them later."""
        if self._agree is None:
            return self._taken_out.among([n for n, is_gone in enumerate(is_gone_of) if is_gone])
        shared = range(len(self._parameters)) if all(is_gone_of) else ()
        return list(range(len(is_gone_of))) if self._taken_out.among(shared) else []


def _remove(hooks: list[Any]) -> None:
    for hook in hooks:
        hook.remove()
    hooks.clear()


@functools.cache
def _watch_optimizers() -> None:
    living_optimizers.watch(_tell_all)


def _tell_all(optimizer: Optimizer, moment: int, has_closure: bool) -> None:
    for outcome in list(_live):
        outcome.at_optimizer(optimizer, moment, has_closure)
