"""Operations under way, by the integer handles of Horovod's interface."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Callable

import torch

from penstock.common.runtime import Operation
from penstock.torch import world
from penstock.torch.tensors import view_of


@dataclass
class _Pending:
    operation: Operation
    finish: Callable[[Operation], Any]  # makes the caller's result out of a finished operation


_lock = threading.Lock()
_handles = itertools.count()
_pending: dict[int, _Pending] = {}
# Numbers of unnamed operations per kind: ranks match the k-th unnamed all-reduce with each other,
# whatever else they do.
_unnamed: dict[str, Iterator[int]] = {}


def full_name(kind: str, name: str | None) -> str:
    """The name under which ranks match: KIND.NAME, or KIND.noname.N for the N-th unnamed operation
    of the kind."""
    if name is not None:
        return f"{kind}.{name}"
    with _lock:
        return f"{kind}.noname.{next(_unnamed.setdefault(kind, itertools.count(1)))}"


def start(
    kind: str,
    name: str | None,
    pattern: int,
    tensor: torch.Tensor | None,
    finish: Callable[[Operation], Any],
    in_place: bool = True,
    **fields: Any,
) -> int:
    """Starts an operation on a usable tensor and returns its handle. Errors: ValueError,
    HorovodInternalError."""
    runtime = world.current()
    view = None if tensor is None else view_of(tensor)
    operation = runtime.submit(full_name(kind, name), pattern, view, in_place, **fields)
    with _lock:
        handle = next(_handles)
        _pending[handle] = _Pending(operation, finish)
    return handle


def then(handle: int, change: Callable[[Any], Any]) -> int:
    """Changes what `synchronize(handle)` will return."""
    with _lock:
        pending = _pending[handle]
    first = pending.finish
    pending.finish = lambda operation: change(first(operation))
    return handle


def poll(handle: int) -> bool:
    """True when ``synchronize(handle)`` would return at once. ValueError for a handle that is not
    pending."""
    with _lock:
        pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return pending.operation.poll()


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result; None for a handle that is not pending (any
    more).

    Raises HorovodInternalError when the ranks disagree or one of them failed.
    """
    with _lock:
        pending = _pending.pop(handle, None)
    if pending is None:
        return None
    try:
        pending.operation.wait()
        return pending.finish(pending.operation)
    finally:
        pending.operation.release()


@world.before_shutdown
def _release_all(aborted: bool) -> None:
    with _lock:
        left = list(_pending.values())
        _pending.clear()
        _unnamed.clear()  # ranks count from one again after the next init
    if left and not aborted and not all(pending.operation.poll() for pending in left):
        # Releasing waits for the peers, who may never ask for these: say so to everybody instead.
        names = ", ".join(pending.operation.name for pending in left)
        world.current().abort(
            f"rank {world.rank()} was shut down with operations under way: {names}"
        )
    for pending in left:
        pending.operation.release()
