"""torch's optimizers of this process: which live, and which are in the middle of a step."""

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

inside: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # a step of theirs has begun
_found: weakref.WeakSet[Optimizer] = weakref.WeakSet()  # by searches
_told: list[Callable[[Optimizer, int, bool], None]] = []


def watch(tell: Callable[[Optimizer, int, bool], None]) -> None:
    """From now on `tell` hears of every step of every optimizer, whoever wraps it: the optimizer,
    OPTIMIZER_BEGINS or OPTIMIZER_ENDS, and whether the step has a closure."""
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
    """Those that have some of these parameters, given by id. Where those that were found before do
    not have all of them, every object of the process is asked."""
    known = _among_found(parameters)
    if not parameters.issubset(number for ids in known.values() for number in ids):
        gc.collect()  # each rank would find other garbage
        _found.update(one for one in gc.get_objects() if issubclass(type(one), Optimizer))
        known = _among_found(parameters)
    return list(known)


def _among_found(parameters: set[int]) -> dict[Optimizer, list[int]]:
    ids = {one: [id(p) for group in one.param_groups for p in group["params"]] for one in _found}
    return {one: own for one, own in ids.items() if not parameters.isdisjoint(own)}
