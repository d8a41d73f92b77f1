"""Penstock for torch. In a Horovod script: ``import penstock.torch as hvd``."""

from penstock._library import library as _library
from penstock.common.exceptions import (
    HorovodInternalError,
    HorovodVersionMismatchError,
    HostsUpdatedInterrupt,
    PenstockError,
)
from penstock.runner import run
from penstock.torch import elastic
from penstock.torch.apart.optimizer import LocalSteps
from penstock.torch.apart.outer import OuterStep
from penstock.torch.compression import Compression
from penstock.torch.ddp import PenstockState, ddp_hook
from penstock.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from penstock.torch.launched import fill_in as _fill_in
from penstock.torch.lending import lend_process_group
from penstock.torch.mpi_ops import (
    Adasum,
    Average,
    Max,
    Min,
    ProcessSet,
    Product,
    Sum,
    add_process_set,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    alltoall,
    alltoall_async,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    ccl_built,
    cross_rank,
    cross_size,
    cuda_built,
    ddl_built,
    global_process_set,
    gloo_built,
    gloo_enabled,
    grouped_allgather,
    grouped_allgather_async,
    grouped_allreduce,
    grouped_allreduce_,
    grouped_allreduce_async,
    grouped_allreduce_async_,
    grouped_reducescatter,
    grouped_reducescatter_async,
    init,
    is_homogeneous,
    is_initialized,
    join,
    local_rank,
    local_size,
    mpi_built,
    mpi_enabled,
    mpi_threads_supported,
    nccl_built,
    poll,
    rank,
    reducescatter,
    reducescatter_async,
    remove_process_set,
    rocm_built,
    shutdown,
    size,
    sparse_allreduce_async,
    start_timeline,
    stop_timeline,
    synchronize,
)
from penstock.torch.optimizer import DistributedOptimizer
from penstock.torch.scheme import Scheme
from penstock.torch.state import load_state_dict, state_dict
from penstock.torch.sync_batch_norm import SyncBatchNorm
from penstock.torch.world import counters, report

# Load the library now, so that an error comes here and not in the middle of a script.
_library()
_fill_in()

__all__ = [
    "Adasum", "Average", "Compression", "DistributedOptimizer", "HorovodInternalError",
    "HorovodVersionMismatchError", "HostsUpdatedInterrupt", "LocalSteps", "Max", "Min",
    "OuterStep", "PenstockError", "PenstockState", "ProcessSet", "Product", "Scheme", "Sum", "SyncBatchNorm", "add_process_set", "allgather",
    "allgather_async", "allgather_object", "allreduce", "allreduce_", "allreduce_async",
    "allreduce_async_", "alltoall", "alltoall_async", "barrier", "broadcast", "broadcast_",
    "broadcast_async", "broadcast_async_", "broadcast_object", "broadcast_optimizer_state",
    "broadcast_parameters", "ccl_built", "counters", "cross_rank", "cross_size", "cuda_built",
    "ddl_built", "ddp_hook", "elastic", "global_process_set", "gloo_built", "gloo_enabled",
    "grouped_allgather", "grouped_allgather_async", "grouped_allreduce", "grouped_allreduce_",
    "grouped_allreduce_async", "grouped_allreduce_async_", "grouped_reducescatter",
    "grouped_reducescatter_async", "init", "is_homogeneous", "is_initialized", "join",
    "lend_process_group", "load_state_dict", "local_rank", "local_size", "mpi_built", "mpi_enabled",
    "mpi_threads_supported", "nccl_built", "poll", "rank", "reducescatter", "reducescatter_async",
    "remove_process_set", "report", "rocm_built", "run", "shutdown", "size", "sparse_allreduce_async",
    "start_timeline", "state_dict", "stop_timeline", "synchronize",
]  # fmt: skip


def __dir__() -> list[str]:
    """The public names, without the modules that define them."""
    return sorted([*__all__, *(name for name in globals() if name.startswith("__"))])
