"""The operations under way, with the integer handles of Horovod's interface."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable

import torch

from penstock.common.operation import Operation, Wish
from penstock.torch import world
from penstock.torch.tensors import memory_of


Ranks = tuple[int, ...]  # world ranks of an operation, ascending; empty: all
Finish = Callable[[Operation], Any]  # makes the caller's result from a finished operation


@dataclass
class _Pending:
    """One operation, or the operations of a group in their order."""

    operations: list[Operation]
    finishes: list[Finish]
    names: list[tuple[str, Ranks]]
    grouped: bool = False

    def poll(self) -> bool:
        return all(operation.poll() for operation in self.operations)


_lock = threading.Lock()
_handles = itertools.count()
_pending: dict[int, _Pending] = {}
# Names that must not be used again yet. A name is free once synchronize() has returned or poll()
# has returned True for its operation. The end of the operation on this rank is not enough: a
# broadcast ends earlier on its root than on other ranks, and all ranks must refuse a second one
# alike.
_taken: set[tuple[str, Ranks]] = set()
# Numbers of unnamed operations per kind and group of ranks. The ranks of a group match their k-th
# unnamed all-reduce with each other, independently of other operations.
_unnamed: dict[tuple[str, Ranks], Iterator[int]] = {}
_joins = 0  # number of joins of all ranks since init


def full_name(kind: str, name: str | None, ranks: Ranks = ()) -> str:
    """The name by which ranks match an operation: KIND.NAME, or KIND.noname.N for the N-th unnamed
    operation of the kind."""
    if name is not None:
        return f"{kind}.{name}"
    with _lock:
        number = next(_unnamed.setdefault((kind, ranks), itertools.count(1)))
        return f"{kind}.noname{f'.joined{_joins}' if _joins else ''}.{number}"


def count_anew() -> None:
    """Restarts the numbers of unnamed operations after all ranks have joined, because the ranks
    have started different numbers of them. Names then also contain the number of the join."""
    global _joins
    with _lock:
        _unnamed.clear()
        _joins += 1


@dataclass
class Request:
    """An operation to start. Its tensors are readable by address (see tensors.py).

    output: the tensor for the result, which may be `tensor`; None: the operation owns the result.
    fields: further fields of the declaration in the C interface.
    """

    pattern: int
    tensor: torch.Tensor | None
    finish: Finish
    output: torch.Tensor | None = None
    splits: Sequence[int] = ()
    fields: dict[str, Any] = field(default_factory=dict)


def start(kind: str, name: str | None, request: Request, ranks: Ranks = ()) -> int:
    """Starts an operation and returns its handle. Raises ValueError and HorovodInternalError."""
    return _start([full_name(kind, name, ranks)], [request], ranks, grouped=False)


def start_group(
    kind: str, name: str | None, requests: Sequence[Request], ranks: Ranks = ()
) -> int:
    """Starts all operations or none. The handle's result is the tuple of their results."""
    base = full_name(kind, name, ranks)
    names = [f"{base}_{i}of{len(requests)}" for i in range(1, len(requests) + 1)]
    return _start(names, requests, ranks, grouped=True)


def start_named(
    kind: str, names: Sequence[str], requests: Sequence[Request], ranks: Ranks = ()
) -> int:
    """Starts all operations or none, like start_group, but each with its own name."""
    return _start([full_name(kind, name, ranks) for name in names], requests, ranks, grouped=True)


def _start(names: list[str], requests: Sequence[Request], ranks: Ranks, grouped: bool) -> int:
    runtime = world.current()
    keys = [(name, ranks) for name in names]
    with _lock:
        twice = [name for name, _ in keys if (name, ranks) in _taken]
        if twice:
            raise ValueError(
                f"operation '{twice[0]}' is still pending on this rank: a name can be used again "
                "after synchronize() of its handle; use another name"
            )
        _taken.update(keys)
    try:
        operations = runtime.submit(
            [_wish(name, request, ranks) for name, request in zip(names, requests)]
        )
    except BaseException:
        with _lock:
            _taken.difference_update(keys)
        raise
    with _lock:
        handle = next(_handles)
        finishes = [request.finish for request in requests]
        _pending[handle] = _Pending(operations, finishes, keys, grouped)
    return handle


def _wish(name: str, request: Request, ranks: Ranks) -> Wish:
    source = None if request.tensor is None else memory_of(request.tensor)
    target = None
    if request.output is not None:
        target = source if request.output is request.tensor else memory_of(request.output)
    return Wish(
        name, request.pattern, source, target, ranks, request.splits, **request.fields
    )


def poll(handle: int) -> bool:
    """True if ``synchronize(handle)`` would return at once. ValueError for a handle that is not
    pending."""
    with _lock:
        pending = _pending.get(handle)
    if pending is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    done = pending.poll()
    if done:
        with _lock:
            _taken.difference_update(pending.names)
            pending.names = []
    return done


def synchronize(handle: int) -> Any:
    """Waits for an operation and returns its result; None for a handle that is not (or no longer)
    pending. For a group, returns the tuple of its results.

    Raises HorovodInternalError if the ranks disagree or a rank failed.
    """
    with _lock:
        pending = _pending.pop(handle, None)
    if pending is None:
        return None
    try:
        results = []
        for operation, finish in zip(pending.operations, pending.finishes):
            operation.wait()
            results.append(finish(operation))
        return tuple(results) if pending.grouped else results[0]
    finally:
        for operation in pending.operations:
            operation.release()
        with _lock:
            _taken.difference_update(pending.names)


@world.before_shutdown
def _release_all(aborted: bool) -> None:
    global _joins
    with _lock:
        left = [operation for pending in _pending.values() for operation in pending.operations]
        _pending.clear()
        _taken.clear()
        _joins = 0
        _unnamed.clear()  # after the next init, ranks count from one again
    if left and not aborted and not all(operation.poll() for operation in left):
        # Releasing waits for the peers, which may never start these operations. Abort instead, so
        # that all ranks receive the reason.
        names = ", ".join(operation.name for operation in left)
        world.current().abort(
            f"rank {world.rank()} was shut down with operations in progress: {names}"
        )
    for operation in left:
        operation.release()
