"""Agreement of ranks before the first step, and parameters that are wrapped again."""

from __future__ import annotations

import gc
import os
from typing import Any

import torch
from support import (
    close,
    expect,
    loss_of,
    make_batch,
    make_model,
    mine,
    run_checks,
    same_bits_on_all_ranks,
)

import penstock.torch as hvd


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def wrap(model: torch.nn.Module, **options: Any) -> Any:
    return hvd.DistributedOptimizer(sgd(model), model.named_parameters(), **options)


def backward(model: torch.nn.Module, step: int) -> None:
    loss_of(model, *map(mine, make_batch(step, 4 * hvd.size()))).backward()


def reference(steps: int, of: torch.nn.Module | None = None) -> torch.nn.Module:
    model = make_model() if of is None else of
    optimizer = sgd(model)
    for step in range(steps):
        optimizer.zero_grad()
        loss_of(model, *make_batch(step, 4 * hvd.size())).backward()
        optimizer.step()
    return model


def check_a_forgotten_broadcast_is_named_on_every_rank() -> None:
    if hvd.size() == 1:
        return
    for scheme in ("", '[scheme]\nscheduler = "dear"\nroute = "split"\n'):
        model = make_model()
        last = hvd.size() - 1
        if hvd.rank() == last:
            with torch.no_grad():
                model[2].bias[3] += 1e-6
                model[4].weight.mul_(2)
        optimizer = wrap(model, scheme=scheme)
        backward(model, 0)
        with expect(
            hvd.HorovodInternalError,
            "parameter 2.bias differs between ranks",
            f"rank {last} does not hold the values of rank 0",
            "2 of 6 parameters",
            "hvd.broadcast_parameters(model.state_dict(), root_rank=0)",
            "check_parameters=False",
        ):
            optimizer.step()
        optimizer.close()
        model.zero_grad()
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        optimizer = wrap(model, scheme=scheme)
        backward(model, 0)
        optimizer.step()
        optimizer.flush()
        close(model, reference(1))
        optimizer.close()


def check_who_means_it_may_start_with_different_parameters() -> None:
    model = make_model()
    with torch.no_grad():
        model[4].bias.fill_(hvd.rank())
    optimizer = wrap(model, check_parameters=False)
    backward(model, 0)
    optimizer.step()
    biases = hvd.allgather(model[4].bias.detach().reshape(1, -1))
    assert len({tuple(row.tolist()) for row in biases}) == hvd.size()
    optimizer.close()


def check_a_second_wrap_takes_over() -> None:
    for garbage in ("nowhere", "everywhere", "on odd ranks"):
        model = make_model()
        older: Any = wrap(model)
        backward(model, 0)
        older.step()
        older.zero_grad()
        steps = older.counters()["steps"]
        if garbage == "everywhere" or (garbage == "on odd ranks" and hvd.rank() % 2):
            del older
            gc.collect()
        optimizer = wrap(model)
        with torch.no_grad():
            for p, q in zip(model.parameters(), make_model().parameters()):
                p.copy_(q)
        for step in range(3):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        close(model, reference(3))
        same_bits_on_all_ranks(model)
        assert (steps, optimizer.counters()["steps"]) == (1, 3)
        if garbage == "nowhere":
            backward(model, 9)
            with expect(hvd.HorovodInternalError, "wrapped later by another"):
                older.step()
            older.close()  # the user's optimizer again
            optimizer.step()
        optimizer.close()


def check_a_second_wrap_drops_gradients_on_their_way() -> None:
    model = make_model()
    older = wrap(model)
    for step in range(2):
        older.step()
        older.zero_grad()
        if hvd.rank() == 0:  # gradients of other ranks count as zero, when these ranks synchronise
            backward(model, step)
    optimizer = wrap(model)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    for step in range(2):
        model.zero_grad()
        backward(model, step)
        optimizer.step()
    same_bits_on_all_ranks(model)
    assert optimizer.counters()["steps"] == 2
    optimizer.close()


def check_a_wrapped_optimizer_may_be_wrapped_again() -> None:
    model = make_model()
    optimizer = hvd.DistributedOptimizer(wrap(model), model.named_parameters())
    assert type(optimizer).__name__ == "SGD" and isinstance(optimizer, torch.optim.SGD)
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    close(model, reference(3))
    optimizer.close()


def check_a_failing_wrap_leaves_the_old_one_alone() -> None:
    model = make_model()
    optimizer = wrap(model)
    with expect(hvd.HorovodInternalError, "no compressor"):
        wrap(model, scheme='[scheme]\ncompressor = "nothing"\n')
    for step in range(3):
        optimizer.zero_grad()
        backward(model, step)
        optimizer.step()
    close(model, reference(3))
    optimizer.close()


def check_parameter_names() -> None:
    model = make_model()
    extra = torch.nn.Parameter(torch.ones(2))
    named = [*model.named_parameters(), ("extra", extra)]
    optimizer: Any = hvd.DistributedOptimizer(sgd(model), named)
    assert optimizer._parameter_names[model[0].bias] == "0.bias"
    assert set(optimizer._parameter_names.values()) == {name for name, _ in named}
    optimizer = hvd.DistributedOptimizer(sgd(model))
    assert optimizer._parameter_names[model[0].bias] == "allreduce.noname.0.1"
    optimizer.close()


def check_a_process_set_averages_among_its_own() -> None:
    if hvd.size() == 1:
        return
    for members, ranks in ((EVEN, range(0, hvd.size(), 2)), (LAST, [hvd.size() - 1])):
        model = make_model()
        with torch.no_grad():  # other sets may train with other values
            model[4].bias.fill_(1.0 if members.included() else hvd.rank())
        start = {name: p.clone() for name, p in model.state_dict().items()}
        optimizer = wrap(model, process_set=members)
        for step in range(3):
            optimizer.zero_grad()
            backward(model, step)
            if step == 1:
                optimizer.synchronize()
                with optimizer.skip_synchronize():
                    optimizer.step()
            else:
                optimizer.step()
        plain = make_model()
        plain.load_state_dict(start)
        other = sgd(plain)
        for step in range(3):
            other.zero_grad()
            x, y = make_batch(step, 4 * hvd.size())
            parts = list(zip(x.chunk(hvd.size()), y.chunk(hvd.size())))
            together = [parts[r] for r in ranks] if members.included() else [parts[hvd.rank()]]
            (sum(loss_of(plain, a, b) for a, b in together) / len(together)).backward()
            other.step()
        close(model, plain)
        assert optimizer.counters()["steps"] == (3 if members.included() else 0)
        saved = optimizer.compression_state_dict()
        optimizer.load_compression_state_dict(saved)
        optimizer.flush()
        optimizer.close()
    # The next optimizer over all ranks agrees again.
    model = make_model()
    optimizer = wrap(model)
    backward(model, 0)
    optimizer.step()
    close(model, reference(1))
    optimizer.close()


def check_a_forgotten_broadcast_inside_a_process_set_names_ranks_of_the_world() -> None:
    if hvd.size() < 3:
        return
    model = make_model()
    if hvd.rank() == 2:
        with torch.no_grad():
            model[0].bias.zero_()
    optimizer = wrap(model, process_set=EVEN)
    backward(model, 0)
    if EVEN.included():
        with expect(hvd.HorovodInternalError, "parameter 0.bias", "rank 2 does not hold"):
            optimizer.step()
    else:
        optimizer.step()
    optimizer.close()


def check_process_sets_and_adasum_in_arguments() -> None:
    model = make_model()
    with expect(ValueError, "not been registered"):
        wrap(model, process_set=hvd.ProcessSet([0]))
    with expect(ValueError, "expected an hvd.ProcessSet"):
        wrap(model, process_set=object())
    if hvd.size() == 1:
        optimizer = wrap(model, op=hvd.Adasum)  # nothing is added: an ordinary optimizer
        for step in range(2):
            optimizer.zero_grad()
            backward(model, step)
            optimizer.step()
        close(model, reference(2))
        return
    with expect(NotImplementedError, "Adasum"):
        wrap(model, op=hvd.Adasum)
    with expect(NotImplementedError, "Adasum", "process set"):
        wrap(model, op=hvd.Adasum, process_set=EVEN)


def process_sets() -> tuple[hvd.ProcessSet, hvd.ProcessSet]:
    """The even ranks, and the last one."""
    size = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["WORLD_SIZE"])
    return hvd.ProcessSet(range(0, size, 2)), hvd.ProcessSet([size - 1])


EVEN, LAST = process_sets()
SETS = [EVEN, LAST] if EVEN.ranks != LAST.ranks else []  # equal in a world of one

if __name__ == "__main__":
    hvd.init(process_sets=SETS)
    run_checks(globals())
