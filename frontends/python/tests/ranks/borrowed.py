"""A borrowed process group of torch: the runs that use it, other work on the group, and
refusals."""

from __future__ import annotations

import os
import signal
import sys

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE, join_torch
from support import (
    close,
    equal,
    expect,
    loss_of,
    make_batch,
    make_model,
    mine,
    run_checks,
    same_bits_on_all_ranks,
    say,
    survivors_have_spoken,
)

import penstock.torch as hvd
from penstock import _library

SCHEMES = (
    'compressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.2\n',
    'compressor = "efsign"\nmemory = "residual"\n',
    'compressor = "powersgd"\nmemory = "residual"\n',
)


def begin(collective: str, scheme: str = "") -> None:
    hvd.init(config_text=f'[scheme]\ncollective = "{collective}"\n{scheme}')


def trained(collective: str, scheme: str) -> torch.nn.Module:
    """The model after a few steps of a run of its own."""
    begin(collective, scheme)
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters()
    )
    for step in range(5):
        optimizer.zero_grad()
        x, y = make_batch(step, 4 * hvd.size())
        loss_of(model, mine(x), mine(y)).backward()
        optimizer.step()
    same_bits_on_all_ranks(model)
    hvd.shutdown()
    return model


def check_groups_that_cannot_carry_a_run_are_refused_with_what_to_do() -> None:
    if SIZE > 1:
        others = dist.new_group(list(range(1, SIZE)))
        if RANK > 0:
            with expect(ValueError, f"expected all {SIZE}", "lend the default group"):
                hvd.lend_process_group(others)
    config, dist.get_backend_config = dist.get_backend_config, lambda group: "cuda:nccl"
    try:
        with expect(ValueError, "backend nccl, expected gloo", 'new_group(backend="gloo")'):
            hvd.lend_process_group()
    finally:
        dist.get_backend_config = config


def check_without_a_group_borrowed_is_an_error_on_every_rank() -> None:
    with expect(hvd.HorovodInternalError, "'borrowed', but the frontend lends none"):
        begin("borrowed")


def check_a_run_without_a_configuration_goes_over_what_was_borrowed() -> None:
    hvd.lend_process_group()
    hvd.init()
    assert hvd.report()["scheme"]["collective"] == "borrowed"
    with expect(ValueError, "the runtime is open", "or after shutdown()"):
        hvd.lend_process_group()
    ranks = hvd.allgather(torch.tensor([RANK]))
    equal(ranks, torch.arange(SIZE))
    hvd.shutdown()
    hvd.init(config_text='[scheme]\ncompressor = "fp16"\n')  # this text names no transport either
    assert hvd.report()["scheme"]["collective"] == "borrowed"
    hvd.shutdown()


def check_training_has_the_same_bits_as_over_ucx() -> None:
    if not (_library.library().path.parent / "penstock/plugins/collective-ucx.so").exists():
        return print("left out: there is no ucx")
    for scheme in SCHEMES:
        close(trained("borrowed", scheme), trained("ucx", scheme), tolerance=0.0)


def check_the_group_stays_usable_beside_a_run() -> None:
    begin("borrowed")
    for round in range(5):
        large = hvd.allreduce_async(torch.full((300_001,), float(RANK)), name="large", op=hvd.Sum)
        own = torch.full((70_001,), float(RANK + round))
        dist.all_reduce(own)
        equal(own, torch.full((70_001,), float(sum(range(SIZE)) + round * SIZE)))
        equal(hvd.synchronize(large), torch.full((300_001,), float(sum(range(SIZE)))))
        there = torch.zeros(3)
        sent = dist.isend(torch.full((3,), float(RANK)), (RANK + 1) % SIZE) if SIZE > 1 else None
        if sent is not None:
            dist.recv(there, (RANK - 1) % SIZE)
            equal(there, torch.full((3,), float((RANK - 1) % SIZE)))
            sent.wait()
    hvd.shutdown()


def check_a_program_may_let_go_of_the_group_before_the_run_ends() -> None:
    begin("borrowed")
    dist.barrier()
    dist.destroy_process_group()
    equal(hvd.allreduce(torch.ones(5), op=hvd.Sum), torch.full((5,), float(SIZE)))
    hvd.shutdown()
    with expect(ValueError, "found no process group"):
        hvd.lend_process_group()


def last_rank_dies() -> None:
    """The last rank dies while other ranks need it."""
    hvd.lend_process_group()
    hvd.init()
    try:
        # The last rank may have the result and die before other ranks have the result.
        hvd.allreduce(torch.ones(3), name="first")
        if RANK == SIZE - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        for _ in range(1000):
            hvd.allreduce(torch.ones(100_000), name="never")
    except hvd.HorovodInternalError as error:
        say(f"survivor {RANK}: {' '.join(str(error).split())}")
        survivors_have_spoken(RANK, SIZE - 1)  # rank 0 serves the message to the others


if __name__ == "__main__":
    join_torch()
    if len(sys.argv) > 1:
        last_rank_dies()
    else:
        run_checks(globals())
