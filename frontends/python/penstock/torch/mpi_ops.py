"""Collective operations on torch tensors: Horovod's names, arguments and errors.

Ranks match operations by name, not by the order of calls. Asynchronous forms return a handle for
`poll` and `synchronize`; the tensor must stay unchanged until then. Out-of-place synchronous forms
are differentiable. `process_set` names the ranks that take part; other ranks must not call the
operation. Errors: ValueError for a mistake of this rank; HorovodInternalError on every rank if
ranks disagree; NotImplementedError for features that follow in a later version.
"""

from __future__ import annotations

import sys
from penstock import _library as c
from penstock.common.util import (
    ccl_built,
    cuda_built,
    ddl_built,
    gloo_built,
    gloo_enabled,
    mpi_built,
    nccl_built,
    rocm_built,
)
from penstock.common.exceptions import HorovodInternalError
from penstock.common.process_sets import (
    ProcessSet,
    add_process_set,
    global_process_set,
    members_of,
    remove_process_set,
)
from penstock.torch import handles, outstanding, world
from penstock.torch.collectives.allgather import (
    allgather,
    allgather_async,
    grouped_allgather,
    grouped_allgather_async,
)
from penstock.torch.collectives.allreduce import (
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
)
from penstock.torch.collectives.alltoall import alltoall, alltoall_async
from penstock.torch.collectives.broadcast import (
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
)
from penstock.torch.collectives.reducescatter import (
    grouped_reducescatter,
    grouped_reducescatter_async,
    reducescatter,
    reducescatter_async,
)
from penstock.torch.collectives.reductions import Adasum, Average, Max, Min, Product, Sum
from penstock.torch.collectives.sparse import sparse_allreduce_async
from penstock.torch.compression import Compression
from penstock.torch.handles import poll, synchronize
from penstock.torch.world import (
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    mpi_enabled,
    mpi_threads_supported,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
)

__all__ = [
    "Adasum", "Average", "Compression", "HorovodInternalError", "Max", "Min", "ProcessSet",
    "Product", "Sum", "add_process_set", "allgather", "allgather_async", "allreduce", "allreduce_",
    "allreduce_async", "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast",
    "broadcast_", "broadcast_async", "broadcast_async_", "ccl_built", "cross_rank", "cross_size",
    "cuda_built", "ddl_built", "global_process_set", "gloo_built", "gloo_enabled",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join", "local_rank",
    "local_size", "mpi_built", "mpi_enabled", "mpi_threads_supported", "nccl_built", "poll", "rank",
    "reducescatter", "reducescatter_async", "remove_process_set", "rocm_built", "shutdown", "size",
    "sparse_allreduce_async", "start_timeline", "stop_timeline", "synchronize",
]  # fmt: skip

# Horovod keeps these functions in an object of this name, and some scripts use it.
_basics = sys.modules[__name__]


def barrier(process_set: ProcessSet = global_process_set) -> None:
    """Waits until every rank of the process set has called it."""
    ranks = members_of(process_set)
    request = handles.Request(c.BARRIER, None, lambda _: None)
    synchronize(handles.start("barrier", None, request, ranks))


def join(device: int = -1) -> int:
    """Declares that this rank has no more data. Waits until every rank has joined and returns the
    rank that joined last, which is equal on all ranks. Call it after ``step()``. Afterwards
    training may continue as before.

    device: Horovod's argument. It is ignored, because a waiting rank works in host memory.

    While this rank waits, it adds zeros to the sums and averages of the other ranks; averages are
    still divided by the number of all ranks. Its optimizers take part in the steps without an
    update: their residuals are sent, and their plans and switches stay equal to those on the other
    ranks. Its parameters stay unchanged, so broadcast them from the returned rank. Until all ranks
    have joined, all other operations fail on the ranks that start them. Ctrl-C ends the wait. A
    rank that fails also ends it, with a HorovodInternalError that names the rank.
    """
    del device
    outstanding.flush_all()
    runtime = world.current()
    while (last := runtime.join(patience_us=100_000)) is None:
        pass  # here Python handles signals
    handles.count_anew()
    return last
