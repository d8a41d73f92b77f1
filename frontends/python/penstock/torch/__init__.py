"""Penstock for torch. In a Horovod script: ``import penstock.torch as hvd``."""

from penstock._library import library as _library
from penstock.common.exceptions import HorovodInternalError, PenstockError
from penstock.torch.compression import Compression
from penstock.torch.functions import (
    allgather_object,
    broadcast_object,
    broadcast_optimizer_state,
    broadcast_parameters,
)
from penstock.torch.mpi_ops import (
    Average,
    Max,
    Min,
    Product,
    Sum,
    allgather,
    allgather_async,
    allreduce,
    allreduce_,
    allreduce_async,
    allreduce_async_,
    barrier,
    broadcast,
    broadcast_,
    broadcast_async,
    broadcast_async_,
    cross_rank,
    cross_size,
    init,
    is_homogeneous,
    is_initialized,
    local_rank,
    local_size,
    poll,
    rank,
    shutdown,
    size,
    start_timeline,
    stop_timeline,
    synchronize,
)
from penstock.torch.optimizer import DistributedOptimizer
from penstock.torch.state import load_state_dict, state_dict
from penstock.torch.world import counters, report

# Fails here, with what to do, rather than in the middle of a script.
_library()

__all__ = [
    "Average", "Compression", "DistributedOptimizer", "HorovodInternalError", "Max", "Min",
    "PenstockError", "Product", "Sum", "allgather", "allgather_async", "allgather_object",
    "allreduce", "allreduce_", "allreduce_async", "allreduce_async_", "barrier", "broadcast",
    "broadcast_", "broadcast_async", "broadcast_async_", "broadcast_object",
    "broadcast_optimizer_state", "broadcast_parameters", "counters", "cross_rank", "cross_size",
    "init", "is_homogeneous", "is_initialized", "load_state_dict", "local_rank", "local_size",
    "poll", "rank", "report", "shutdown", "size", "start_timeline", "state_dict", "stop_timeline",
    "synchronize",
]  # fmt: skip
