"""Both ranks run this: a named operation of more than 2^31 elements of one byte, over the transport of the configuration.

    python ranks_of_large.py broadcast|allreduce|allgather

Elements repeat with a period that is no divisor of a power of two, so that elements that lie 2^31 or 2^32 too far, and
elements that were left out, are seen.
"""

from __future__ import annotations

import sys

import torch

import penstock.torch as hvd
from penstock import _library as c
from penstock.common.operation import Memory, Wish
from penstock.torch import world

ELEMENTS = 2**31 + 17
PERIOD = 1_000_003
CHUNK = 64 * PERIOD


def pattern(rank: int) -> torch.Tensor:
    """int8[CHUNK]: the elements of a rank, which repeat. Sums of two ranks fit."""
    return ((torch.arange(PERIOD) * (7919 + 2 * rank) >> 5) % 50 + rank).to(torch.int8).repeat(CHUNK // PERIOD)


def fill(tensor: torch.Tensor, repeated: torch.Tensor) -> None:
    for part in tensor.split(CHUNK):
        part.copy_(repeated[: part.numel()])


def check(what: str, tensor: torch.Tensor, repeated: torch.Tensor) -> None:
    for number, part in enumerate(tensor.split(CHUNK)):
        if not torch.equal(part, repeated[: part.numel()]):
            wrong = int((part != repeated[: part.numel()]).nonzero()[0])
            raise AssertionError(f"{what} on rank {hvd.rank()}: element {number * CHUNK + wrong} is {part[wrong]}")


def broadcast() -> None:
    data = torch.empty(ELEMENTS, dtype=torch.int8)
    fill(data, pattern(hvd.rank()))
    hvd.broadcast_(data, root_rank=1, name="large.broadcast")
    check("broadcast", data, pattern(1))


def allreduce() -> None:
    """hvd.allreduce refuses integers of one byte, as Horovod does, so the operation of the runtime itself."""
    data = torch.empty(ELEMENTS, dtype=torch.int8)
    fill(data, pattern(hvd.rank()))
    memory = Memory(data.shape, c.INT8, data.data_ptr(), data)
    (operation,) = world.current().submit([Wish("large.allreduce", c.ALL_REDUCE, memory, memory, reduction=c.REDUCE_SUM)])
    operation.wait()
    operation.release()
    check("allreduce", data, pattern(0) + pattern(1))


def allgather() -> None:
    """Ranks have different numbers of rows, each fewer than 2^31, and together more."""
    rows = (2**30 + 5, 2**30 + 17)
    data = torch.empty(rows[hvd.rank()], dtype=torch.int8)
    fill(data, pattern(hvd.rank()))
    gathered = hvd.allgather(data, name="large.allgather")
    assert gathered.numel() == sum(rows)
    for rank, part in enumerate(gathered.split(rows)):
        check(f"allgather of rank {rank}", part, pattern(rank))


def main(name: str) -> None:
    torch.set_num_threads(1)
    hvd.init()
    {"broadcast": broadcast, "allreduce": allreduce, "allgather": allgather}[name]()
    if hvd.rank() == 0:
        print(f"{name} is right", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main(*sys.argv[1:])
