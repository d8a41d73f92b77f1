"""Handles and names: which call waits for which operation, and which operations run meanwhile."""

from __future__ import annotations

import gc

import torch
from support import begin, equal, expect, run_checks

import penstock.torch as hvd
from penstock.torch import handles


def total(tensor: torch.Tensor) -> torch.Tensor:
    """The sum over ranks of a tensor that is equal on all ranks."""
    return tensor * float(hvd.size())


def check_names_carry_the_kind_and_a_number() -> None:
    handle = hvd.allreduce_async(torch.ones(2), name="mine")
    assert handles._pending[handle].operations[0].name == "allreduce.mine"
    hvd.synchronize(handle)
    for start, kind in (
        (hvd.allreduce_async, "allreduce"),
        (hvd.allgather_async, "allgather"),
        (hvd.alltoall_async, "alltoall"),
        (hvd.reducescatter_async, "reducescatter"),
        (lambda t: hvd.broadcast_async(t, 0), "broadcast"),
        (lambda t: hvd.grouped_allreduce_async([t, t]), "grouped_allreduce"),
    ):
        numbers = []
        for _ in range(2):
            handle = start(torch.ones(hvd.size()))
            name = handles._pending[handle].operations[0].name
            prefix, _, number = name.rpartition(".")
            assert prefix == f"{kind}.noname", name
            numbers.append(int(number.partition("_")[0]))
            hvd.synchronize(handle)
        assert numbers[1] == numbers[0] + 1, numbers


def check_names_match_whatever_the_order() -> None:
    a, b = torch.full((3,), float(hvd.rank())), torch.full((3,), 10.0 + hvd.rank())
    order = [("a", a), ("b", b)] if hvd.rank() % 2 == 0 else [("b", b), ("a", a)]
    started = {name: hvd.allreduce_async(t, name=name, op=hvd.Sum) for name, t in order}
    everyone = float(sum(range(hvd.size())))
    equal(hvd.synchronize(started["a"]), torch.full((3,), everyone))
    equal(hvd.synchronize(started["b"]), torch.full((3,), everyone + 10.0 * hvd.size()))


def check_everything_passes_while_a_named_operation_waits_for_its_peers() -> None:
    tensor, late = torch.ones(hvd.size()), None
    alone = hvd.size() == 1
    if hvd.rank() == 0:
        late = hvd.allreduce_async(tensor, name="late", op=hvd.Sum)
        assert alone or not hvd.poll(late)
    hvd.barrier()
    equal(hvd.allreduce(tensor, op=hvd.Sum), total(tensor))
    equal(hvd.allgather(tensor[:1]), tensor)
    equal(hvd.broadcast(tensor, hvd.size() - 1), tensor)
    equal(hvd.alltoall(tensor), tensor)
    equal(hvd.reducescatter(tensor, op=hvd.Sum), total(tensor[:1]))
    equal(hvd.grouped_allreduce([tensor], op=hvd.Sum)[0], total(tensor))
    assert late is None or alone or not hvd.poll(late)
    assert hvd.broadcast_object("passes", 0) == "passes"
    if late is None:
        late = hvd.allreduce_async(tensor, name="late", op=hvd.Sum)
    equal(hvd.synchronize(late), total(tensor))


def check_poll_is_false_until_done_and_synchronize_gives_the_result_once() -> None:
    handle = None
    if hvd.rank() == 0:
        handle = hvd.allreduce_async(torch.ones(2), name="polled", op=hvd.Sum)
        assert hvd.size() == 1 or not hvd.poll(handle)
    hvd.barrier()
    if handle is None:
        handle = hvd.allreduce_async(torch.ones(2), name="polled", op=hvd.Sum)
    while not hvd.poll(handle):
        pass
    equal(hvd.synchronize(handle), total(torch.ones(2)))
    assert hvd.synchronize(handle) is None and hvd.synchronize(10**9) is None
    with expect(ValueError, "cleared"):
        hvd.poll(handle)


def check_inputs_live_as_long_as_their_handles() -> None:
    started = [
        hvd.allreduce_async_(torch.full((1000,), float(i)), op=hvd.Sum, name=f"kept{i}")
        for i in range(20)
    ]
    gc.collect()
    for i, handle in reversed(list(enumerate(started))):
        equal(hvd.synchronize(handle), total(torch.full((1000,), float(i))))


def check_one_name_twice_is_refused_and_free_again_after_synchronize() -> None:
    first = hvd.allreduce_async(torch.ones(2), name="twice")
    with expect(ValueError, "allreduce.twice", "pending"):
        hvd.allreduce_async(torch.ones(2), name="twice")
    # Each kind of operation has its own names.
    other = hvd.allgather_async(torch.ones(1), name="twice")
    equal(hvd.synchronize(first), torch.ones(2))
    equal(hvd.synchronize(other), torch.ones(hvd.size()))
    for _ in range(3):
        equal(hvd.allreduce(torch.ones(2), name="twice"), torch.ones(2))
    polled = hvd.allreduce_async(torch.ones(2), name="twice")
    while not hvd.poll(polled):
        pass
    second = hvd.allreduce_async(torch.full((2,), 3.0), name="twice")
    equal(hvd.synchronize(second), torch.full((2,), 3.0))
    equal(hvd.synchronize(polled), torch.ones(2))


def check_a_second_broadcast_of_one_name_is_refused_on_every_rank() -> None:
    # The root ends first. Its name must not become free while other ranks still use the name.
    first = hvd.broadcast_async(torch.full((1000,), float(hvd.rank())), 0, name="again")
    if hvd.rank() == 0:
        while not handles._pending[first].poll():
            pass
    with expect(ValueError, "broadcast.again"):
        hvd.broadcast_async(torch.ones(1000), 0, name="again")
    equal(hvd.synchronize(first), torch.zeros(1000))
    equal(hvd.broadcast(torch.ones(3), 0, name="again"), torch.ones(3))


def check_a_refused_operation_leaves_its_name_free() -> None:
    with expect(ValueError, "contiguous"):
        hvd.allreduce(torch.ones(4, 4).t(), name="refused")
    with expect(ValueError, "root_rank"):
        hvd.broadcast(torch.ones(2), hvd.size(), name="refused")
    equal(hvd.allreduce(torch.ones(2), name="refused"), torch.ones(2))
    equal(hvd.broadcast(torch.ones(2), 0, name="refused"), torch.ones(2))


if __name__ == "__main__":
    begin()
    run_checks(globals())
