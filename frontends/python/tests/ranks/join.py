"""Ranks that run out of data at different times: `join`."""

from __future__ import annotations

import torch
from support import (
    begin,
    equal,
    expect,
    loss_of,
    make_batch,
    make_model,
    mine,
    run_checks,
    same_bits_on_all_ranks,
)

import penstock.torch as hvd

SCHEMES = {
    "none": '[scheme]\ncompressor = "none"\n',
    "topk": '[scheme]\ncompressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.2\n',
    "dear": '[scheme]\ncompressor = "none"\nscheduler = "dear"\n',
}


def train(scheme: str, joins: bool) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Rank r has data for r + 1 steps. In later steps it joins, or hands in no gradient."""
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        scheme=SCHEMES[scheme],
    )
    for step in range(hvd.size()):
        optimizer.zero_grad()
        if step <= hvd.rank():
            x, y = make_batch(step, 4 * hvd.size())
            loss_of(model, mine(x), mine(y)).backward()
        elif joins:
            break
        optimizer.step()
    if joins:
        assert hvd.join() == hvd.size() - 1
    optimizer.flush()
    kept = optimizer.compression_state_dict()
    hvd.broadcast_parameters(model.state_dict(), root_rank=hvd.size() - 1)
    for step in range(2):
        optimizer.zero_grad()
        x, y = make_batch(10 + step, 4 * hvd.size())
        loss_of(model, mine(x), mine(y)).backward()
        optimizer.step()
    optimizer.flush()
    return model, kept


def check_means_are_over_all_ranks_and_every_rank_hears_the_last_one() -> None:
    for round in range(3):
        last = (hvd.size() - 1 + round) % hvd.size()
        mine_ends = (hvd.rank() - round) % hvd.size()
        for step in range(mine_ends):
            left = hvd.size() - 1 - step
            for dtype in (torch.float32, torch.float64, torch.float16):
                got = hvd.allreduce(torch.full((3, 2), float(hvd.size()), dtype=dtype))
                equal(got, torch.full((3, 2), float(left), dtype=dtype))
            counted = hvd.allreduce(torch.ones(2, dtype=torch.int64), op=hvd.Sum)
            equal(counted, torch.full((2,), left, dtype=torch.int64))
            two = hvd.grouped_allreduce([torch.ones(1), torch.ones(2)], op=hvd.Sum)
            equal(two[1], torch.full((2,), float(left)))
        assert hvd.join() == last
        equal(hvd.allreduce(torch.ones(2), op=hvd.Sum), torch.full((2,), float(hvd.size())))


def check_an_average_is_the_sum_divided_to_the_bit() -> None:
    generator = torch.Generator().manual_seed(hvd.rank())
    if hvd.rank() > 0:
        for dtype in (torch.float32, torch.float64):
            own = torch.randn(1000, generator=generator, dtype=dtype)
            whole = hvd.allreduce(own, op=hvd.Sum)
            equal(hvd.allreduce(own), whole / hvd.size())
            equal(hvd.grouped_allreduce([own, own[:7]])[1], whole[:7] / hvd.size())
    hvd.join()


def check_other_operations_are_errors_on_the_ranks_that_ask() -> None:
    if hvd.rank() > 0:
        ones = torch.ones(hvd.size())
        for call in (
            lambda: hvd.allgather(ones),
            lambda: hvd.broadcast(ones, 1),
            lambda: hvd.alltoall(ones),
            lambda: hvd.reducescatter(ones),
            lambda: hvd.allreduce(ones, op=hvd.Max),
            hvd.barrier,
        ):
            with expect(hvd.HorovodInternalError, "rank 0 has joined"):
                call()
    assert (hvd.join() != 0) == (hvd.size() > 1)
    equal(hvd.allgather(torch.ones(1)), torch.ones(hvd.size()))


def check_a_joined_rank_steps_like_one_whose_gradients_are_absent() -> None:
    for scheme in SCHEMES:
        joined, kept = train(scheme, joins=True)
        absent, expected = train(scheme, joins=False)
        if hvd.rank() == hvd.size() - 1:
            for a, b in zip(joined.parameters(), absent.parameters()):
                equal(a.detach(), b.detach())
        assert kept.keys() == expected.keys()
        same_bits_on_all_ranks(joined)


def check_in_the_middle_of_a_step_it_is_an_error() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    x, y = make_batch(0, 4 * hvd.size())
    loss_of(model, mine(x), mine(y)).backward()
    optimizer.synchronize()
    with expect(hvd.HorovodInternalError, "middle of a step"):
        hvd.join()
    with optimizer.skip_synchronize():
        optimizer.step()
    hvd.join()


if __name__ == "__main__":
    begin()
    run_checks(globals())
