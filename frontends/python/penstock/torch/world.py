"""The runtime of this process: init, shutdown, topology, reports and the timeline.

Horovod's interface has one world per process; here is the one global that this needs.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections.abc import Sequence
from typing import Any, Callable

import torch

import penstock
from penstock import _library as c
from penstock.common.runtime import Runtime
from penstock.torch.tensors import view_of

_lock = threading.RLock()
_runtime: Runtime | None = None
_owner_pid = 0
_homogeneous = True
# Run at the start of a shutdown, in the order of registration: they finish or give up what is under
# way.
_before_shutdown: list[Callable[[bool], None]] = []


def before_shutdown(action: Callable[[bool], None]) -> Callable[[bool], None]:
    """Registers `action(aborted)` to run whenever a runtime is about to close."""
    _before_shutdown.append(action)
    return action


def current() -> Runtime:
    """The open runtime. Raises ValueError before init."""
    if _runtime is None:
        raise ValueError("Horovod has not been initialized; use hvd.init().")
    return _runtime


def init(
    comm: Any | None = None,
    process_sets: Sequence[Any] | None = None,
    config: str | None = None,
    config_text: str | None = None,
) -> None:
    """Opens the runtime and meets the other ranks; collective. Does nothing when it is open.

    config: path of a TOML file; default: the one named by PENSTOCK_CONFIG, or no compression over
        MPI.
    config_text: TOML text instead of a file.
    comm, process_sets: Horovod's; only the world of all ranks is offered, so they must be empty.
    """
    global _runtime, _owner_pid, _homogeneous
    if comm is not None:
        raise NotImplementedError(
            "init(comm=...) is not offered: the world is always that of the launcher; leave it out"
        )
    if process_sets:
        raise NotImplementedError(
            "init(process_sets=...) is not offered: only the set of all ranks; leave it out"
        )
    if config is not None and config_text is not None:
        raise ValueError("init got config and config_text, expected at most one of them")
    with _lock:
        if _runtime is not None:
            if config is not None or config_text is not None:
                raise ValueError(
                    "init was given a configuration but the runtime is open; call shutdown() first"
                )
            return
        path = "" if config is None else os.fspath(config)
        opened = Runtime(path, config_text or "", f"penstock.torch {penstock.__version__}")
        try:
            _homogeneous = _ranks_are_even(opened)
        except BaseException:
            opened.close()
            raise
        _runtime, _owner_pid = opened, os.getpid()


def _ranks_are_even(runtime: Runtime) -> bool:
    """True when all hosts have the same number of ranks."""
    if runtime.topology.cross_size == 1:
        return True
    # The smallest local size, and minus the largest, in one reduction.
    sizes = torch.tensor(
        [runtime.topology.local_size, -runtime.topology.local_size], dtype=torch.int64
    )
    operation = runtime.submit(
        "penstock.init.local_size",
        c.ALL_REDUCE,
        view_of(sizes),
        in_place=True,
        reduction=c.REDUCE_MIN,
    )
    try:
        operation.wait()
    finally:
        operation.release()
    return int(sizes[0]) == -int(sizes[1])


def shutdown() -> None:
    """Applies deferred updates, then closes the runtime. Does nothing when it is not open."""
    _close(None)


def _close(failure: str | None) -> None:
    global _runtime
    with _lock:
        if _runtime is None:
            return
        closing = _runtime
        if failure is not None:
            closing.abort(failure)
        first: BaseException | None = None
        for action in _before_shutdown:
            try:
                action(failure is not None)
            except Exception as error:  # noqa: BLE001 - the runtime must be closed whatever an action meets
                first = first or error
        _runtime = None
        closing.close()
    if first is not None and failure is None:
        raise first


@atexit.register
def _at_exit() -> None:
    # A forked child (a data loader's worker) inherits the module but not the threads: it must not
    # touch the runtime.
    if _runtime is None or os.getpid() != _owner_pid:
        return
    # Set by the interpreter when a script ends in an uncaught exception: then no peer may wait for
    # this rank.
    uncaught = getattr(sys, "last_value", None)
    if uncaught is None:
        _close(None)
    else:
        _close(f"rank {_runtime.topology.rank} ended with {type(uncaught).__name__}: {uncaught}")


def is_initialized() -> bool:
    """True between init and shutdown."""
    return _runtime is not None


def rank() -> int:
    """The number of this process in the world, from 0."""
    return current().topology.rank


def size() -> int:
    """How many processes there are."""
    return current().topology.size


def local_rank() -> int:
    """The number of this process among those of its host."""
    return current().topology.local_rank


def local_size() -> int:
    """How many processes there are on this host."""
    return current().topology.local_size


def cross_rank() -> int:
    """The number of this host."""
    return current().topology.cross_rank


def cross_size() -> int:
    """How many hosts there are."""
    return current().topology.cross_size


def is_homogeneous() -> bool:
    """True when every host has the same number of processes."""
    current()
    return _homogeneous


def report() -> dict[str, Any]:
    """Configuration in force, plugins, plans and counters of the runtime, as the core reports
    them."""
    return current().report()


def counters() -> dict[str, int]:
    """Totals over all optimizers of this rank: steps, gradient_bytes, payload_bytes, messages and
    so on."""
    return current().counters()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts writing a Chrome trace of the stages of every bucket of rank 0; on other ranks it does
    nothing, as Horovod's. `mark_cycles` is Horovod's and has no meaning here.

    The configuration's `[runtime] timeline` gives a file for every rank."""
    del mark_cycles
    if not file_path:
        raise ValueError("start_timeline got an empty path, expected the file to write")
    runtime = current()
    # Every rank is given the same path: two writers would spoil the file.
    if runtime.topology.rank == 0:
        runtime.timeline(os.fspath(file_path))


def stop_timeline() -> None:
    """Ends the trace that start_timeline began."""
    current().timeline("")
