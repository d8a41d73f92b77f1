"""The runtime of this process: init, shutdown, topology, reports and the timeline.

Horovod's interface has one world per process. This module holds the global variables for it.
"""

from __future__ import annotations

import atexit
import ctypes
import json
import os
import sys
import threading
import warnings
from collections.abc import Sequence
from typing import Any, Callable

import penstock
from penstock.common import environment, uncaught
from penstock.common import process_sets as sets
from penstock.common.exceptions import MISMATCH, HorovodInternalError
from penstock.common.process_sets import ProcessSetTable
from penstock.common.runtime import BorrowedTransport, Runtime
from penstock.torch import identity

# Open MPI and MPICH both use this number.
_MPI_THREAD_MULTIPLE = 3

_lock = threading.RLock()
_runtime: Runtime | None = None
_owner_pid = 0
# Makes the transport of a run if the program lends a transport; otherwise None.
_lender: Callable[[], BorrowedTransport] | None = None
# Makes a transport and the warning about it if no other transport can be loaded. Its result is None
# if there is no such transport or it is not needed.
_last_resort: Callable[[], tuple[BorrowedTransport, str] | None] = lambda: None
_homogeneous = True
# Actions that run at the start of a shutdown, in the order of registration. They finish or abandon
# the work under way.
_before_shutdown: list[Callable[[bool], None]] = []


def before_shutdown(action: Callable[[bool], None]) -> Callable[[bool], None]:
    """Registers `action(aborted)`, which runs whenever a runtime is about to close."""
    _before_shutdown.append(action)
    return action


def borrow_from(lender: Callable[[], BorrowedTransport]) -> None:
    """Makes `lender` provide the transport of all runs that init opens from now on. ValueError
    while a run is open."""
    global _lender
    with _lock:
        if _runtime is not None:
            raise ValueError(
                "a transport must be lent before init(), but the runtime is open; lend it before "
                "init(), or after shutdown()"
            )
        _lender = lender


def borrow_for_want(lender: Callable[[], tuple[BorrowedTransport, str] | None]) -> None:
    """Makes `lender` provide the transport of runs that have borrowed none and have no other."""
    global _last_resort
    _last_resort = lender


def current() -> Runtime:
    """The open runtime. Raises ValueError before init."""
    if _runtime is None:
        raise ValueError(sets.NOT_INITIALIZED)
    return _runtime


def init(
    comm: Any | None = None,
    process_sets: Sequence[sets.ProcessSet] | str | None = None,
    config: str | None = None,
    config_text: str | None = None,
) -> None:
    """Opens the runtime and connects it with the other ranks. Collective. Does nothing if the
    runtime is open.

    config: path of a TOML file. Default: the file that PENSTOCK_CONFIG names; without it, no
        compression, over the launcher's transport or a borrowed one (lend_process_group).
    config_text: TOML text instead of a file.
    comm: Horovod's argument. It must be empty, because the launcher always makes the world.
    process_sets: the sets to register, equal on every rank; "dynamic" (or
        HOROVOD_DYNAMIC_PROCESS_SETS=1) to add and remove sets later.
    """
    global _runtime, _owner_pid, _homogeneous
    if comm is not None and not (isinstance(comm, (list, tuple)) and not comm):
        raise NotImplementedError(
            "init(comm=...) is not offered: the launcher always makes the world; leave it "
            "out, and name parts of the world in process_sets"
        )
    dynamic = sets.dynamic_by_environment()
    if isinstance(process_sets, str):
        if process_sets.lower() != "dynamic":
            raise ValueError(
                f'process_sets is {process_sets!r}, expected a list of hvd.ProcessSet or "dynamic"'
            )
        dynamic, process_sets = True, None
    wanted = list(process_sets or [])
    if config is not None and config_text is not None:
        raise ValueError(
            "init got config and config_text, expected only config or only config_text"
        )
    if config is not None and not os.fsdecode(config):
        raise ValueError(
            "config is an empty text, expected the path of a TOML file; leave the argument out to "
            "take the file that PENSTOCK_CONFIG names, or no compression"
        )
    with _lock:
        if _runtime is not None:
            if config is not None or config_text is not None:
                raise ValueError(
                    "init was given a configuration but the runtime is open; call shutdown() first"
                )
            return
        path = "" if config is None else os.fsdecode(config)
        opened = _open(path, config_text or "")
        try:
            table = ProcessSetTable(opened, dynamic)
            _homogeneous = _settle_world(table, wanted)
        except BaseException:
            opened.close()
            raise
        _runtime, _owner_pid = opened, os.getpid()
        sets.open_table(table)
    uncaught.install_hook(opened.topology.rank)
    _name_variables_without_effect(opened)


def _open(path: str, text: str) -> Runtime:
    group = identity.of_default_group()
    resort = _last_resort() if _lender is None else None
    borrowed = _lender() if _lender is not None else resort and resort[0]
    name = f"penstock.torch {penstock.__version__}"
    try:
        opened = Runtime(path, text, name, borrowed, group or identity.of_torchrun())
    except HorovodInternalError as error:
        raise type(error)(_with_groups_remedy(str(error), group), error.code) from None
    if resort and opened.topology.rank == 0 and transport_of(opened) == "borrowed":
        warnings.warn(resort[1], stacklevel=3)
    return opened


def _with_groups_remedy(said: str, group: identity.Identity | None) -> str:
    if group is not None or "collective/ucx" not in said and "'ucx'" not in said:
        return said
    return said + (
        '; or call torch.distributed.init_process_group("gloo") before hvd.init(): then its group '
        "carries the messages of Penstock"
    )


def transport_of(runtime: Runtime) -> str:
    """The name of the transport: "ucx", "mpi", "borrowed" and so on."""
    scheme = runtime.report()["scheme"]
    return scheme["transport"] or scheme["collective"]


def _settle_world(table: ProcessSetTable, wanted: Sequence[sets.ProcessSet]) -> bool:
    """Registers the process sets of init. Returns True if all hosts have equal numbers of ranks.
    Collective; errors reach every rank."""
    fault = table.fault_of(wanted)
    asked = "refused" if fault else str([one.ranks for one in wanted])
    topology = table.runtime.topology
    texts = table.runtime.gather_text(
        "penstock.init", json.dumps({"process_sets": asked, "local_size": topology.local_size})
    )
    if fault:
        raise ValueError(f"init got invalid process sets: {fault}")
    everyone = [json.loads(text) for text in texts]
    for rank, other in enumerate(everyone):
        if other["process_sets"] != asked:
            raise HorovodInternalError(
                f"init got the process sets {asked} on rank {topology.rank} and "
                f"{other['process_sets']} on rank {rank}; the process sets must be equal on "
                "all ranks",
                MISMATCH,
            )
    table.register(wanted)
    return len({other["local_size"] for other in everyone}) == 1


def _name_variables_without_effect(runtime: Runtime) -> None:
    if runtime.topology.rank != 0 or runtime.report().get("log_level") == "error":
        return
    said = environment.line(os.environ, runtime.topology)
    if said:
        print(said, file=sys.stderr, flush=True)


def shutdown() -> None:
    """Applies deferred updates, then closes the runtime. Does nothing if the runtime is not
    open."""
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
            except Exception as error:  # noqa: BLE001 - the runtime must close anyway
                first = first or error
        if failure is None and first is None:
            closing.say_if_unused()
        _runtime = None
        sets.open_table(None)
        closing.close()
    if first is not None and failure is None:
        raise first


@atexit.register
def _at_exit() -> None:
    # A forked child (a data loader's worker) inherits this module but not the threads, so it must
    # not touch the runtime.
    if _runtime is None or os.getpid() != _owner_pid:
        return
    # The interpreter sets last_value when a script ends in an uncaught exception. No peer may then
    # wait for this rank.
    error = getattr(sys, "last_value", None)
    _close(None if error is None else uncaught.reason(_runtime.topology.rank, error))


def is_initialized() -> bool:
    """True between init and shutdown."""
    return _runtime is not None


def rank() -> int:
    """The number of this process in the world, from 0."""
    return current().topology.rank


def size() -> int:
    """The number of processes in the world."""
    return current().topology.size


def local_rank() -> int:
    """The number of this process among the processes of its host, from 0."""
    return current().topology.local_rank


def local_size() -> int:
    """The number of processes on this host."""
    return current().topology.local_size


def cross_rank() -> int:
    """The number of this host, from 0."""
    return current().topology.cross_rank


def cross_size() -> int:
    """The number of hosts."""
    return current().topology.cross_size


def is_homogeneous() -> bool:
    """True if all hosts have equal numbers of processes."""
    current()
    return _homogeneous


def mpi_enabled() -> bool:
    """True if messages travel over MPI; False before init."""
    if _runtime is None:
        return False
    return transport_of(_runtime) == "mpi"


def mpi_threads_supported() -> bool:
    """True if MPI was started so that any thread may call it. A program needs this to use mpi4py
    beside Horovod's calls. ValueError before init and without MPI."""
    current()
    if not mpi_enabled():
        raise ValueError("Horovod MPI is not enabled; Please make sure it's installed and enabled.")
    level = ctypes.c_int()
    _loaded_mpi().MPI_Query_thread(ctypes.byref(level))
    return level.value == _MPI_THREAD_MULTIPLE


def _loaded_mpi() -> ctypes.CDLL:
    """The MPI library that the transport has loaded into this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        for line in maps:
            path = line.split(maxsplit=5)[-1].strip()
            if os.path.basename(path).startswith("libmpi.so"):
                return ctypes.CDLL(path, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    raise HorovodInternalError("no libmpi.so is mapped into this process though mpi is in use")


def report() -> dict[str, Any]:
    """Returns the configuration in force, the plugins, the plans and the counters of the runtime,
    as the core reports them."""
    return current().report()


def counters() -> dict[str, int]:
    """Returns totals over all optimizers of this rank: steps, gradient_bytes, payload_bytes (bytes
    handed to the transport), moved_bytes (bytes sent to other ranks, counted each time they are
    sent), dense_moved_bytes (moved_bytes without compression), messages and so on."""
    return current().counters()


def start_timeline(file_path: str, mark_cycles: bool = False) -> None:
    """Starts a Chrome trace of the stages of every bucket of rank 0. On other ranks it does
    nothing, like Horovod's function. `mark_cycles` gives a warning, because there are no cycles to
    mark.

    `[runtime] timeline` in the configuration writes a file for every rank instead."""
    if mark_cycles:
        warnings.warn(
            "start_timeline(mark_cycles=True) marks nothing: operations start when they are ready, "
            "not in cycles",
            stacklevel=2,
        )
    if not file_path:
        raise ValueError("start_timeline got an empty path, expected the file to write")
    runtime = current()
    # Every rank gets an equal path, and two writers would destroy the file.
    if runtime.topology.rank == 0:
        runtime.timeline(os.fspath(file_path))


def stop_timeline() -> None:
    """Ends the trace of start_timeline()."""
    current().timeline("")
