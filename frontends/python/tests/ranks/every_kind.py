"""Tensors with every property that torch has (kinds.py), through every operation and every door of
gradients: the result is right, or an error says in a sentence why there is none."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE, join_torch
from kinds import DRAWN, GUARD, Doubled, Kind, Wrapping, drawn, unknown
from support import run_checks

import penstock.torch as hvd
from penstock.torch.bucket_exchange import BucketExchange
from penstock.torch.fsdp import PenstockReduceScatter

Values = list[torch.Tensor]  # the values of every rank
Door = Callable[[Kind, torch.Tensor, Values], None]

NONE = '[scheme]\ncompressor = "none"\nmemory = "none"\n'
ALL = (
    '[scheme]\ncompressor = "topk"\nmemory = "residual"\n'
    '[compressor.topk]\ndensity = 1.0\nvalue_type = "fp32"\n'
)
LATE = '[scheme]\ncompressor = "none"\nmemory = "none"\napply = "previous"\n'


def begin() -> None:
    join_torch()
    hvd.init()
    warnings.simplefilter("ignore")  # of torch, about named, nested and sparse tensors


def read(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor as torch has them."""
    if isinstance(tensor, (Doubled, Wrapping)):
        return tensor.read(tensor.held)
    values = tensor.detach()
    values = values.rename(None) if values.has_names() else values
    return torch.empty(tensor.shape, dtype=tensor.dtype).copy_(values.to_dense())


def agree(got: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal to some roundings of the type of `got`."""
    assert got.shape == expected.shape, f"{got.shape} instead of {expected.shape}"
    wide = torch.complex128 if got.dtype.is_complex else torch.float64
    close = torch.allclose(read(got).to(wide), expected.to(wide), rtol=2e-2, atol=1e-2)
    assert close, f"{read(got)} instead of {expected}"


def added(values: Values) -> torch.Tensor:
    return torch.stack([one.double() for one in values]).sum(0)


# ---- operations ----


def allreduce(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.allreduce(tensor, op=hvd.Sum), added(values))


def allreduce_in_place(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    agree(tensor, added(values))


def grouped_allreduce(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    first, second = hvd.grouped_allreduce([tensor, tensor], op=hvd.Sum)
    agree(first, added(values))
    agree(second, added(values))


def compressed_allreduce(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16), added(values))


def allgather(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.allgather(tensor), torch.cat(values))


def broadcast(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.broadcast(tensor, SIZE - 1), values[-1])


def broadcast_in_place(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    assert hvd.broadcast_(tensor, SIZE - 1) is tensor
    agree(tensor, values[-1])


def alltoall(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.alltoall(tensor), torch.cat([one.chunk(SIZE)[RANK] for one in values]))


def reducescatter(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.reducescatter(tensor, op=hvd.Sum), added(values).tensor_split(SIZE)[RANK])


def broadcast_parameters(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    hvd.broadcast_parameters({"one": tensor}, SIZE - 1)
    agree(tensor, values[-1])


def sparse_allreduce(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    agree(hvd.sparse_allreduce_async(tensor, "one", hvd.Sum)().to_dense(), added(values))


OPERATIONS: tuple[Door, ...] = (
    allreduce, allreduce_in_place, grouped_allreduce, compressed_allreduce, allgather, broadcast,
    broadcast_in_place, alltoall, reducescatter, broadcast_parameters, sparse_allreduce,
)  # fmt: skip


# ---- doors of gradients ----


class Halved(hvd.Compression.none):
    """A user's compressor."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor / 2, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor * 2


def parameter_for(gradient: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """A parameter of float32 that torch lets have this gradient."""
    parameter = torch.nn.Parameter(torch.zeros(values.shape))
    if hasattr(parameter, "grad_dtype"):
        parameter.grad_dtype = None  # any
    parameter.grad = gradient
    return parameter


def optimizer_with(steps: int = 1, **options: Any) -> Door:
    """The door of a DistributedOptimizer with these options."""

    def door(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
        parameter = parameter_for(tensor, values[RANK])
        plain = torch.optim.SGD([parameter], lr=1.0)
        late = options.get("scheme") == LATE
        optimizer = hvd.DistributedOptimizer(plain, [("one", parameter)], **options)
        try:
            optimizer.synchronize()
            if late:
                with optimizer.skip_synchronize():
                    optimizer.step()
                optimizer.flush()
            mean = added(values) / (1 if options.get("op") == hvd.Sum else SIZE)
            agree(parameter.grad, mean)
        finally:
            optimizer.close()

    return door


def hook(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    class Given:
        """A bucket as a wrapper of the hook hands it on."""

        index, is_last = staticmethod(lambda: 0), staticmethod(lambda: True)
        buffer = staticmethod(lambda: tensor)
        parameters = staticmethod(lambda: [parameter])

    parameter = torch.nn.Parameter(torch.zeros(values[RANK].shape))
    exchange = BucketExchange(ALL, None, None)
    try:
        result = exchange.hand_in(Given()).wait()  # type: ignore[arg-type]
        agree(result, added(values) / SIZE)
    finally:
        exchange.close()


def reducer(scheme: str | None) -> Door:
    """The door of FSDP2's reducer, which a program may call itself."""

    def door(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
        output = torch.empty(values[RANK].numel() // SIZE)
        PenstockReduceScatter(scheme)(output, tensor, dist.group.WORLD, dist.ReduceOp.AVG)
        agree(output, (added(values) / SIZE).chunk(SIZE)[RANK])

    return door


def local_steps(kind: Kind, tensor: torch.Tensor, values: Values) -> None:
    parameter = torch.nn.Parameter(tensor.detach())
    start = values[0]
    plain = torch.optim.SGD([parameter], lr=1.0)
    hvd.broadcast_parameters([("one", parameter)], 0)
    optimizer = hvd.LocalSteps(plain, every=1, outer=None, scheme=ALL)
    try:
        parameter.grad = torch.full(start.shape, float(RANK), dtype=parameter.dtype)
        optimizer.step()
        agree(parameter, start - sum(range(SIZE)) / SIZE)
    finally:
        optimizer.close()


GRADIENTS: tuple[Door, ...] = (
    optimizer_with(scheme=NONE),
    optimizer_with(scheme=ALL, op=hvd.Sum),
    optimizer_with(compression=hvd.Compression.fp16),
    optimizer_with(compression=Halved),
    optimizer_with(gradient_predivide_factor=2.0),
    optimizer_with(sparse_as_dense=True),
    optimizer_with(scheme=LATE),
    local_steps,
)
FLAT: tuple[Door, ...] = (hook, reducer(None), reducer(ALL))


# ---- the checks ----

SENTENCES = (ValueError, RuntimeError, NotImplementedError, TypeError)


def ends_well(kind: Kind, door: Door) -> bool:
    """Sends a tensor through a door. True if its result is right, False if a sentence refuses the
    tensor on every rank."""
    tensor, values = kind.made(RANK)[0], [kind.made(rank)[1] for rank in range(SIZE)]
    guarded = kind.choices[0] == "between guards" and set(kind.choices[1:]) <= USUAL
    try:
        door(kind, tensor, values)
    except SENTENCES as error:
        known = type(error) in SENTENCES and len(str(error).split()) > 3
        assert known, f"{kind}: {type(error).__name__}: {error}"
        return False
    except Exception as error:
        raise AssertionError(f"{kind}: {type(error).__name__}: {error}") from error
    if guarded:
        storage = torch.empty(0, dtype=kind.dtype).set_(tensor.untyped_storage())
        assert bool((storage[:GUARD] == 7).all() and (storage[-GUARD:] == 7).all()), kind
    return True


USUAL = {"no bit", "Tensor", "no state", "dense"}


def report(what: str, done: dict[str, int]) -> None:
    if RANK == 0:
        print(f"{what}: {done}", flush=True)


def check_every_property_of_a_tensor_is_known() -> None:
    assert unknown(["is_cpu", "is_new", "view"]) == ["is_new"]
    new = unknown(dir(torch.Tensor))
    assert not new, (
        f"torch {torch.__version__} gives tensors the properties {', '.join(new)}, which kinds.py "
        "does not know: if such a property changes what the memory of a tensor means, add a choice "
        "that has it to AXES and its name to DRAWN, else add its name to DEVICES or HARMLESS"
    )


def check_every_property_is_drawn() -> None:
    tensors = [kind.made(0)[0] for kind in drawn(120, seed=1)]
    for name in DRAWN & set(dir(torch.Tensor)):
        assert any(has(tensor, name) for tensor in tensors), f"no tensor is drawn that {name}"


def has(tensor: torch.Tensor, name: str) -> bool:
    try:
        found = getattr(tensor, name)
        return bool(found() if callable(found) else found)
    except RuntimeError:  # torch does not answer for such a tensor
        return False


def check_operations() -> None:
    right = dict.fromkeys((door.__name__ for door in OPERATIONS), 0)
    for kind in drawn(120, seed=1):
        for door in OPERATIONS:
            right[door.__name__] += ends_well(kind, door)
    report("operations", right)
    assert all(right.values()), right


def check_gradients() -> None:
    for kind in drawn(60, seed=2):
        for door in GRADIENTS:
            ends_well(kind, door)


def check_flat_buffers() -> None:
    for kind in drawn(35, seed=3, shapes=((6,), (0,))):
        for door in FLAT:
            ends_well(kind, door)


if __name__ == "__main__":
    begin()
    run_checks(globals())
