"""Finds the living torch optimizers of this process, and the optimizers that are inside a step."""

from __future__ import annotations

import gc
import weakref
from typing import Any, Callable

from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from penstock import _library as c

inside: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # optimizers inside a step
_found: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # optimizers that searches have found
_told: list[Callable[[Optimizer, int, bool], None]] = []


def watch(tell: Callable[[Optimizer, int, bool], None]) -> None:
    """Calls `tell` at the begin and the end of every step of every optimizer, also of a wrapped
    one. The arguments are the optimizer, OPTIMIZER_BEGINS or OPTIMIZER_ENDS, and whether the step
    has a closure."""
    if not _told:
        register_optimizer_step_pre_hook(_step_begins)
        register_optimizer_step_post_hook(_step_ends)
    _told.append(tell)


def _step_begins(optimizer: Optimizer, given: tuple[Any, ...], named: dict[str, Any]) -> None:
    inside.add(optimizer)
    has_closure = any(one is not None for one in (*given[1:], named.get("closure")))
    for tell in _told:
        tell(optimizer, c.OPTIMIZER_BEGINS, has_closure)


def _step_ends(optimizer: Optimizer, _: Any, __: Any) -> None:
    inside.discard(optimizer)
    for tell in _told:
        tell(optimizer, c.OPTIMIZER_ENDS, False)


def having(parameters: set[int]) -> list[Optimizer]:
    """The optimizers that have some of these parameters, given by id. If the optimizers found
    before do not have all parameters, searches all objects of the process."""
    known = _among_found(parameters)
    if not parameters.issubset(number for ids in known.values() for number in ids):
        gc.collect()  # otherwise ranks would find different garbage
        _found.update(one for one in gc.get_objects() if issubclass(type(one), Optimizer))
        known = _among_found(parameters)
    return list(known)


def _among_found(parameters: set[int]) -> dict[Optimizer, list[int]]:
    ids = {one: [id(p) for group in one.param_groups for p in group["params"]] for one in _found}
    return {one: own for one, own in ids.items() if not parameters.isdisjoint(own)}
