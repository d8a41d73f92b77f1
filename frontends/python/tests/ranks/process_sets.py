"""Process sets: their members, adding and removing, and collectives over some of the ranks."""

from __future__ import annotations

import torch
from support import equal, expect, run_checks

import penstock.torch as hvd

# Even and odd ranks. Empty in a world of one, where every set would be the global set.
static: list[hvd.ProcessSet] = []


def begin() -> None:
    """Registers the static sets."""
    hvd.init()
    size = hvd.size()
    hvd.shutdown()
    static[:] = [hvd.ProcessSet(range(p, size, 2)) for p in (0, 1)] if size > 1 else []
    hvd.init(process_sets=static)


def mine() -> hvd.ProcessSet:
    """The static set that this rank is in."""
    return static[hvd.rank() % 2] if static else hvd.global_process_set


def check_static_sets_know_their_members() -> None:
    for parity, one in enumerate(static):
        number, members = parity + 1, list(range(parity, hvd.size(), 2))
        assert (one.process_set_id, one.ranks, one.size()) == (number, members, len(members))
        assert one.included() == (hvd.rank() in members)
        if one.included():
            assert one.rank() == members.index(hvd.rank())
        else:
            with expect(ValueError, "Process is not part of provided process set."):
                one.rank()
    world = hvd.global_process_set
    assert (world.process_set_id, world.ranks) == (0, list(range(hvd.size())))
    assert (world.included(), world.rank(), world.size()) == (True, hvd.rank(), hvd.size())


def check_collectives_of_both_sets_at_once() -> None:
    group = mine()
    members = group.ranks
    own = torch.full((len(members), 3), float(hvd.rank() + 1))
    total = float(sum(r + 1 for r in members))
    equal(hvd.allreduce(own, op=hvd.Sum, process_set=group), torch.full_like(own, total))
    torch.testing.assert_close(
        hvd.allreduce(own, process_set=group), torch.full_like(own, total / len(members))
    )
    joined = torch.cat([torch.full((len(members), 3), float(r + 1)) for r in members])
    equal(hvd.allgather(own, process_set=group), joined)
    # The root is a rank of the world.
    equal(
        hvd.broadcast(own, members[-1], process_set=group),
        torch.full_like(own, float(members[-1] + 1)),
    )
    dealt = torch.stack([torch.full((3,), float(r + 1)) for r in members])
    equal(hvd.alltoall(own, process_set=group), dealt)
    equal(
        hvd.reducescatter(own, op=hvd.Sum, process_set=group), torch.full((1, 3), total)
    )
    for name in ("a", "b"):
        tensors = [own.clone(), own[:1].clone()]
        handle = hvd.grouped_allreduce_async_(tensors, name=name, op=hvd.Sum, process_set=group)
        assert len(hvd.synchronize(handle)) == 2
        equal(tensors[0], torch.full_like(own, total))
    assert hvd.broadcast_object({"from": hvd.rank()}, members[0], process_set=group) == {
        "from": members[0]
    }
    assert hvd.allgather_object(hvd.rank(), process_set=group) == members
    parameters = {"w": torch.full((4,), float(hvd.rank()))}
    hvd.broadcast_parameters(parameters, members[0], process_set=group)
    equal(parameters["w"], torch.full((4,), float(members[0])))
    hvd.barrier(process_set=group)


def check_unnamed_operations_of_the_world_match_after_uneven_ones_of_a_set() -> None:
    if mine() is not hvd.global_process_set and hvd.rank() % 2 == 0:
        for _ in range(3):
            hvd.allreduce(torch.ones(2), process_set=mine())
    equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(hvd.size())))


def check_one_name_in_two_sets_at_once() -> None:
    if not static:
        return
    group = mine()
    handles = [
        hvd.allreduce_async(torch.ones(3), name="same", op=hvd.Sum, process_set=one)
        for one in (group, hvd.global_process_set)
    ]
    equal(hvd.synchronize(handles[0]), torch.full((3,), float(group.size())))
    equal(hvd.synchronize(handles[1]), torch.full((3,), float(hvd.size())))


def check_autograd_stays_in_the_set() -> None:
    group = mine()
    n = group.size()
    x = torch.full((n, 2), float(hvd.rank()), requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum, process_set=group).mul(float(hvd.rank())).sum().backward()
    equal(x.grad, torch.full((n, 2), float(sum(group.ranks))))
    x.grad = None
    weights = torch.arange(float(n * n * 2)).reshape(n * n, 2)
    hvd.allgather(x, process_set=group).mul(weights).sum().backward()
    first = group.rank() * n
    torch.testing.assert_close(x.grad, weights[first : first + n])
    x.grad = None
    root = group.ranks[0]
    hvd.broadcast(x, root, process_set=group).sum().backward()
    equal(x.grad, torch.full((n, 2), 1.0 if hvd.rank() == root else 0.0))
    x.grad = None
    hvd.reducescatter(x, op=hvd.Sum, process_set=group).sum().backward()
    equal(x.grad, torch.full((n, 2), float(n)))


def check_a_set_that_this_rank_is_not_in_is_refused() -> None:
    with expect(ValueError, "ProcessSet"):
        hvd.allreduce(torch.ones(2), process_set=[0])
    if not static:
        return
    with expect(ValueError, "not a member"):
        hvd.allreduce(torch.ones(2), process_set=static[(hvd.rank() + 1) % 2])
    with expect(ValueError, "root_rank", "process set"):
        hvd.broadcast(torch.ones(2), (hvd.rank() + 1) % 2, process_set=mine())


def check_static_sets_cannot_change() -> None:
    with expect(ValueError, "HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.add_process_set([0])
    for one in static:
        with expect(ValueError, "HOROVOD_DYNAMIC_PROCESS_SETS=1"):
            hvd.remove_process_set(one)
    assert hvd.remove_process_set(hvd.global_process_set) is False


def check_sets_end_with_the_runtime() -> None:
    hvd.shutdown()
    with expect(ValueError, "Horovod has not been initialized; use hvd.init()."):
        hvd.global_process_set.size()
    hvd.init(process_sets="dynamic")
    for one in static:
        assert one.process_set_id is None and one.size() is None
        assert one.included() is None and one.rank() is None
        with expect(ValueError, "not been registered"):
            hvd.allreduce(torch.ones(2), process_set=one)


def check_what_cannot_be_added() -> None:
    with expect(ValueError, "duplicate"):
        hvd.add_process_set(range(hvd.size()))
    for wrong in ([0, hvd.size()], [-1], [], [0, 0], ["0"], [0.5], [True], 3, "01"):
        with expect(ValueError):
            hvd.add_process_set(wrong)


def check_adding_and_removing() -> None:
    if not static:
        return
    members = [1, 0] if hvd.size() > 2 else [1]
    added = hvd.add_process_set(members)
    assert (added.process_set_id, added.ranks) == (1, sorted(members))
    if added.included():
        sums = hvd.allreduce(torch.ones(2), op=hvd.Sum, process_set=added)
        equal(sums, torch.full((2,), float(len(members))))
    again = hvd.ProcessSet(members)
    for duplicate in (members, again):
        with expect(ValueError, "duplicate"):
            hvd.add_process_set(duplicate)
    assert hvd.remove_process_set(added) is True
    assert hvd.remove_process_set(added) is False
    with expect(ValueError, "not been registered"):
        hvd.allreduce(torch.ones(2), process_set=added)
    assert hvd.add_process_set(again) is again and again.process_set_id == 2
    assert hvd.remove_process_set(again) is True


def check_ranks_that_add_different_sets_all_hear_it() -> None:
    if not static:
        return
    with expect(hvd.HorovodInternalError, "process sets", "[0]", "[1]"):
        hvd.add_process_set([min(hvd.rank(), 1)])
    assert hvd.remove_process_set(hvd.add_process_set([0])) is True


def check_the_environment_makes_sets_dynamic() -> None:
    from penstock.common.util import env

    hvd.shutdown()
    with env(HOROVOD_DYNAMIC_PROCESS_SETS="1"):
        hvd.init()
    if static:
        assert hvd.remove_process_set(hvd.add_process_set([0])) is True
    hvd.shutdown()
    with env(HOROVOD_DYNAMIC_PROCESS_SETS="yes"), expect(ValueError, "'yes'"):
        hvd.init()
    with env(HOROVOD_DYNAMIC_PROCESS_SETS="0"):
        hvd.init()
    with expect(ValueError, "HOROVOD_DYNAMIC_PROCESS_SETS=1"):
        hvd.add_process_set([0])


def check_sets_of_init_are_checked_on_every_rank() -> None:
    rank, size = hvd.rank(), hvd.size()
    hvd.shutdown()
    with expect(ValueError, "duplicate"):
        hvd.init(process_sets=[hvd.ProcessSet(range(size))])
    if static:
        with expect(ValueError, "duplicate"):
            hvd.init(process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
        with expect(hvd.HorovodInternalError, "process sets", "[[0]]", "[[1]]"):
            hvd.init(process_sets=[hvd.ProcessSet([min(rank, 1)])])
    assert not hvd.is_initialized()
    hvd.init(process_sets=static)
    assert [one.process_set_id for one in static] == [1, 2][: len(static)]


if __name__ == "__main__":
    begin()
    run_checks(globals())
