"""DDP's buckets as gradients of the core: their names, shapes and places in memory."""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from penstock.common.devices import HOST, Place
from penstock.torch import devices, world
from penstock.torch.checks import Named
from penstock.torch.collectives.reductions import Average
from penstock.torch.collectives.sparse import sparse_allreduce_async
from penstock.torch.tensors import (
    DTYPES,
    check_has_values,
    check_may_be_written,
    plain_copy,
    readable_by_address,
    write,
)


_BUCKET = "a bucket of DistributedDataParallel"


class Bucket:
    """A bucket during its exchange.

    Its gradients lie in one buffer. The core works in that buffer, also on a device, or in a copy
    if the buffer is not readable by address.
    """

    def __init__(self, given: dist.GradBucket) -> None:
        self.number = given.index()
        self.is_last = given.is_last()
        self.buffer = given.buffer()
        if not self.buffer.is_sparse:
            check_has_values(_BUCKET, self.buffer)
        self.parameters = given.parameters()
        self.left = len(self.parameters)  # number of results that have not arrived
        self.place = HOST if self.buffer.is_sparse else devices.place_of(self.buffer)
        # The stream on which the gradients are complete, also if they are handed in later.
        self.stream = None if self.place == HOST else devices.current_stream(self.buffer)
        self._over = devices.future_of(self.buffer)
        self._error: Exception | None = None
        # For DDP a future fails only if its callback raises.
        self.future: torch.futures.Future = self._over.then(self._result)
        self.gradients = [] if self.buffer.is_sparse else parts_of(self.buffer, self.parameters)
        self._copy: torch.Tensor | None = None

    def addresses(self) -> list[int]:
        """The address of each gradient for the core."""
        if not readable_by_address(self.buffer, place=self.place):
            check_may_be_written(_BUCKET, self.buffer)
            home = "cpu" if self.place == HOST else self.buffer.device
            self._copy = plain_copy(self.buffer, home)
        flat = self.buffer if self._copy is None else self._copy
        return [part.data_ptr() for part in parts_of(flat, self.parameters)]

    def finish(self, result: torch.Tensor | Exception) -> None:
        """Gives DDP the result, or the reason why there is none."""
        if isinstance(result, Exception):
            self._error = result
        else:
            if self._copy is not None:
                self._write_back(self._copy)
            self.buffer = result
        self._over.set_result(self.buffer)

    def _write_back(self, copy: torch.Tensor) -> None:
        try:
            write(self.buffer, copy)
        except Exception as error:  # noqa: BLE001 - threads of the core cannot raise it
            self._error = error

    def _result(self, over: torch.futures.Future) -> torch.Tensor:
        if self._error is not None:
            raise self._error
        return over.value()


def parts_of(buffer: torch.Tensor, parameters: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The gradients in a bucket's buffer, flat, in their order in memory. A complex number is two
    floats there, although GradBucket.gradients() counts it as one element."""
    sizes = [parameter.numel() * (2 if parameter.is_complex() else 1) for parameter in parameters]
    if buffer.dtype not in DTYPES or not buffer.dtype.is_floating_point:
        raise ValueError(
            f"ddp_hook got gradients of {buffer.dtype}, expected float32, float64, float16 or "
            "bfloat16; register ddp_hook itself, or fp16_compress_wrapper(ddp_hook)"
        )
    if sum(sizes) != buffer.numel():
        raise ValueError(
            f"a bucket of DistributedDataParallel has {buffer.numel()} elements, its "
            f"{len(sizes)} parameters have {sum(sizes)}: this torch ({torch.__version__}) lays "
            "buckets out in a way that Penstock does not know; use DistributedOptimizer"
        )
    return list(buffer.split(sizes))


@dataclass(frozen=True)
class Numbered:
    """A gradient of the set that will be made."""

    name: str
    parameter: torch.Tensor
    gradient: torch.Tensor
    place: Place
    bucket: int


def numbered(buckets: Sequence[Bucket], named: Named | None) -> list[Numbered]:
    """The gradients of all buckets, as far as possible in the order of the model's forward, with
    names that are equal on every rank and in every run of the model.

    named: the model's named parameters; without them the names are parameter.N.
    """
    found = [
        (parameter, gradient, bucket.place, bucket.number)
        for bucket in reversed(buckets)  # DDP fills buckets in the order of backward
        for parameter, gradient in zip(bucket.parameters, bucket.gradients)
    ]
    if named is None:
        return [Numbered(f"parameter.{n}", *one) for n, one in enumerate(found)]
    place = {id(parameter): number for number, (_, parameter) in enumerate(named)}
    missing = [parameter for parameter, *_ in found if id(parameter) not in place]
    if missing:
        raise ValueError(
            f"named_parameters of PenstockState lacks {len(missing)} of the {len(found)} "
            "parameters that DistributedDataParallel trains, the first of shape "
            f"{tuple(missing[0].shape)}; give it model.named_parameters()"
        )
    found.sort(key=lambda one: place[id(one[0])])
    return [Numbered(named[place[id(one[0])]][0], *one) for one in found]


def memory_shape(parameter: torch.Tensor) -> tuple[int, ...]:
    """The extents of the parameter's gradient in memory order, in floats; a complex number is two
    neighbouring floats. DDP lays a gradient out like its parameter (channels last), which the
    bucket's own views do not show."""
    shape = tuple(parameter.shape)
    if not parameter.is_contiguous():
        order = sorted(range(parameter.dim()), key=lambda d: -parameter.stride(d))
        shape = tuple(shape[d] for d in order)
    if not parameter.is_complex():
        return shape
    return (*shape[:-1], 2 * shape[-1]) if shape else (2,)


def group_of_ddp(parameters: Sequence[torch.Tensor]) -> dist.ProcessGroup | None:
    """The process group of the DistributedDataParallel that has these parameters. None if it has
    all ranks. A hook is not told the group, so all objects of the process are searched."""
    wanted = {id(parameter) for parameter in parameters}
    for one in gc.get_objects():
        if issubclass(type(one), DistributedDataParallel) and "module" in one._modules:
            if not wanted.isdisjoint(id(parameter) for parameter in one.module.parameters()):
                group = one.process_group
                return None if dist.get_world_size(group) == dist.get_world_size() else group
    return None


def mean_of_sparse(bucket: Bucket, process_group: dist.ProcessGroup | None) -> torch.Tensor:
    """The mean of a sparse parameter's gradients. The scheme does not apply to them: every rank
    gathers the rows of all ranks. Waits for the result."""
    if process_group is not None:
        raise ValueError(
            "a sparse gradient is averaged over all ranks only, and the process group of this "
            "DistributedDataParallel has some of them: use torch.nn.Embedding(sparse=False)"
        )
    check_world(None)
    name = f"ddp.sparse.{bucket.number}"
    return sparse_allreduce_async(bucket.buffer.coalesce(), name, Average)().coalesce()


def check_world(process_group: dist.ProcessGroup | None) -> tuple[int, ...]:
    """The ranks of a process group; empty if it has all ranks. ValueError if torch's rank numbers
    differ from the runtime's."""
    ours, theirs = (world.rank(), world.size()), (dist.get_rank(), dist.get_world_size())
    if ours != theirs:
        raise ValueError(
            f"this process is rank {theirs[0]} of {theirs[1]} for torch.distributed, and rank "
            f"{ours[0]} of {ours[1]} for Penstock: the numbers come from two launchers. Over "
            f"MPI start the program with 'penstock run -np {theirs[1]} -- python train.py' and "
            "make torch's ranks from hvd.rank() and hvd.size() after hvd.init() (docs/ddp.md)"
        )
    if process_group is None or dist.get_world_size(process_group) == ours[1]:
        return ()
    return tuple(sorted(dist.get_process_group_ranks(process_group)))
