"""LocalSteps over a process set: the ranks of a set train apart among themselves."""

from __future__ import annotations

import os
from typing import Any

import torch
from local_steps_oracle import Simulation, Way
from local_steps_support import (
    STREAM,
    copied,
    end,
    inner_of,
    make_model,
    train,
    train_once,
    wrap,
    wrap_for,
)
from support import close, expect, run_checks

import penstock.torch as hvd

SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["WORLD_SIZE"])
SETS = [hvd.ProcessSet(range(parity, SIZE, 2)) for parity in (0, 1)]
WAY = Way(every=6, fragments=2, delay=1, mix=0.5, density=0.25)


def mine() -> hvd.ProcessSet:
    return SETS[hvd.rank() % 2]


def wrap_on(members: hvd.ProcessSet, model: torch.nn.Module, **arguments: Any) -> Any:
    return wrap(model, inner_of(model, "sgd"), process_set=members, **arguments)


def train_in_my_set(model: torch.nn.Module, steps: int) -> Any:
    optimizer = wrap_for(WAY, model, inner_of(model, "sgd"), process_set=mine())
    train(model, optimizer, 0, steps)
    return optimizer


def check_two_sets_train_among_themselves_and_never_wait_for_each_other() -> None:
    steps, model, optimizer = 20, make_model(), None
    for parity in (0, 1):  # the even ranks have ended before the odd ranks begin
        if hvd.rank() % 2 == parity:
            optimizer = train_in_my_set(model, steps)
        hvd.barrier()
    ranks = mine().ranks or []
    models = [make_model() for _ in ranks]
    inner = [inner_of(one, "sgd") for one in models]
    expected = Simulation(
        models, lambda n, step: train_once(models[n], inner[n], ranks[n], step), WAY
    )
    expected.run(steps)
    close(model, models[mine().rank() or 0], 1e-6)
    for key, anchor in optimizer.anchors().items():
        torch.testing.assert_close(anchor, expected.anchors[key], rtol=0, atol=1e-6)
    for n, one in enumerate(models[1:]):  # other ranks have other parameters inside a round
        assert not torch.equal(one[0].weight, models[n][0].weight)
    optimizer.synchronize()
    flat = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
    others = hvd.allgather(flat.reshape(1, -1))
    for rank, other in enumerate(others):
        assert torch.equal(flat, other) == (rank in ranks), f"rank {rank} and {hvd.rank()}"
    end(optimizer)


def check_a_rank_outside_the_set_trains_as_its_own_optimizer_does() -> None:
    even, model, plain = SETS[0], make_model(), make_model()
    optimizer, reference = wrap_on(even, model, **STREAM), inner_of(plain, "sgd")
    train(model, optimizer, 0, 14)
    saved = copied(optimizer.compression_state_dict())
    everyone = hvd.allgather_object(saved)
    train(model, optimizer, 14, 20)
    optimizer.synchronize()
    assert optimizer.report()["steps"] == 20
    if even.included():
        assert optimizer.counters()["steps"] > 0
        with expect(ValueError, "is in the process set", "each rank loads the state"):
            optimizer.load_compression_state_dict(everyone[1])
    else:
        train(plain, reference, 0, 20)
        for mine_, its in zip(model.parameters(), plain.parameters()):
            assert torch.equal(mine_, its)
        assert optimizer.anchors() == {} and optimizer.counters()["steps"] == 0
        with expect(ValueError, "is outside the process set", "each rank loads the state"):
            optimizer.load_compression_state_dict(everyone[0])
    optimizer.load_compression_state_dict(saved)
    assert optimizer.report()["steps"] == 14
    end(optimizer)
    with expect(ValueError, "wrap the optimizer again"):
        optimizer.step()


def check_parameters_outside_the_set_are_free_for_another_exchange() -> None:
    model = make_model()
    apart = wrap_on(SETS[0], model, every=3)
    if SETS[0].included():
        with expect(ValueError, "LocalSteps exchanges these parameters already"):
            wrap_on(mine(), model, every=3)
    else:
        other = wrap_on(mine(), model, every=3)
        train(model, other, 0, 3)
        other.close()
    end(apart)


def check_broken_values_stay_in_their_set() -> None:
    model = make_model()
    optimizer = wrap_on(mine(), model, every=2)
    train(model, optimizer, 0, 1)
    if hvd.rank() == 0:
        with torch.no_grad():
            model[0].weight.fill_(float("nan"))
    train(model, optimizer, 1, 2)
    moved = not torch.equal(model[0].weight, make_model()[0].weight)
    assert moved == (hvd.rank() % 2 == 1), "the bucket of the set goes back to its anchors"
    end(optimizer)


def check_no_process_set_is_refused_with_the_sentences_of_the_optimizer() -> None:
    model = make_model()
    for wrong, words in (
        (hvd.ProcessSet([0]), "not been registered"),
        (object(), "expected an hvd.ProcessSet"),
        ([0], "expected an hvd.ProcessSet"),
    ):
        with expect(ValueError, words):
            wrap(model, every=2, process_set=wrong)
        with expect(ValueError, words):
            hvd.DistributedOptimizer(inner_of(model), process_set=wrong)
    end(wrap(model, every=2, process_set=None))


if __name__ == "__main__":
    hvd.init(process_sets=SETS)
    run_checks(globals())
