"""LocalSteps: the states of all ranks of a run, loaded on another number of ranks."""

from __future__ import annotations

import os
from typing import Any

import torch
from local_steps_oracle import Simulation, Way
from local_steps_support import (
    copied,
    inner_of,
    make_model,
    train,
    train_once,
    wrap_for,
)
from support import close, expect, run_checks

import penstock.torch as hvd

SIZE = int(os.environ.get("OMPI_COMM_WORLD_SIZE") or os.environ["WORLD_SIZE"])
ODD, FIRST = hvd.ProcessSet([1, 3] if SIZE > 3 else [0, 1]), hvd.ProcessSet([0])
WORLD = hvd.global_process_set
# The ranks that save, and the ranks that load.
MOVES = [(WORLD, ODD)] if SIZE > 3 else [(ODD, FIRST), (ODD, WORLD)]


def wrapped_for(way: Way, members: hvd.ProcessSet, model: torch.nn.Module) -> Any:
    return wrap_for(way, model, inner_of(model, "sgd"), process_set=members)


def simulation_of(way: Way, members: hvd.ProcessSet) -> Simulation:
    ranks = members.ranks or []
    models = [make_model() for _ in ranks]
    inner = [inner_of(one, "sgd") for one in models]
    return Simulation(models, lambda n, step: train_once(models[n], inner[n], ranks[n], step), way)


def moved_to(old: Simulation, way: Way, members: hvd.ProcessSet) -> Simulation:
    """The same run on other ranks: an exchange under way lands, models begin at the anchors, and
    the residual of old rank r goes to new rank r mod P. Its weight in a mean is kept."""
    for means in old.travelling.values():
        old._land(means)
    new = simulation_of(way, members)
    new.anchors, new.velocity = old.anchors, old.velocity
    for rank, kept in enumerate(old.kept):
        n = rank % len(new.kept)
        for name, residual in kept.items():
            new.kept[n][name] += residual * (len(new.kept) / len(old.kept))
    for model in new.models:
        for name, parameter in model.named_parameters():
            parameter.detach().copy_(new.anchors[name])
    return new


def saved_by(way: Way, members: hvd.ProcessSet, at: int) -> list[dict[str, Any]]:
    """The states that the members save after step `at`, on every rank of the world."""
    model, state = make_model(), {}
    optimizer = wrapped_for(way, members, model)
    if members.included():
        train(model, optimizer, 0, at)
        state = copied(optimizer.compression_state_dict())
    shards = hvd.allgather_object(state)
    optimizer.close()
    return [shard for shard in shards if shard]


def expect_to_go_on(way: Way, at: int, *words: str) -> None:
    for old, new in MOVES:
        shards = saved_by(way, old, at)
        assert len(shards) == old.size()
        model = make_model()
        optimizer = wrapped_for(way, new, model)
        said = optimizer.load_compression_shards(shards)
        if new.included():
            for word in (*words, "anchors, outer momentum: as saved"):
                assert word in said, f"{word!r} is not in {said}"
            before = simulation_of(way, old)
            before.run(at)
            after = moved_to(before, way, new)
            expect_equal(model, optimizer, after, new)
            steps = 2 * way.every
            train(model, optimizer, at, at + steps)
            after.run(steps, at)
            expect_equal(model, optimizer, after, new)
        hvd.barrier()
        optimizer.close()


def expect_equal(
    model: torch.nn.Module, optimizer: Any, expected: Simulation, members: hvd.ProcessSet
) -> None:
    for key, anchor in optimizer.anchors().items():
        torch.testing.assert_close(anchor, expected.anchors[key], rtol=0, atol=1e-6)
    close(model, expected.models[members.rank() or 0], 1e-6)


LOST = "the way that each rank had made alone since its last exchange is lost"


def check_at_the_end_of_a_round_nothing_is_lost() -> None:
    expect_to_go_on(Way(every=4), 8, "parameters: the anchors, as saved")
    expect_to_go_on(Way(every=4, density=0.25), 8, "mass 'residual' of", "the anchors, as saved")


def check_inside_a_round_every_rank_goes_back_to_the_anchors_and_it_is_said() -> None:
    expect_to_go_on(Way(every=4, density=0.25), 7, LOST, "saves after synchronize()")
    expect_to_go_on(Way(every=4), 1, LOST)


def check_an_exchange_under_way_is_applied() -> None:
    expect_to_go_on(Way(every=4, delay=2, mix=0.5, density=0.25), 9, LOST)
    expect_to_go_on(Way(every=9, fragments=3, delay=2, density=0.25), 13, LOST)


def check_after_synchronize_nothing_is_lost() -> None:
    way = Way(every=6, fragments=2, delay=1, mix=0.5)
    old, new = MOVES[-1]
    model, shards = make_model(), {}
    optimizer = wrapped_for(way, old, model)
    if old.included():
        train(model, optimizer, 0, 5)
        optimizer.synchronize()
        shards = copied(optimizer.compression_state_dict())
    everyone = [one for one in hvd.allgather_object(shards) if one]
    ends = hvd.allgather_object(copied(model.state_dict()))[(old.ranks or [0])[0]]
    optimizer.close()
    other = make_model()
    loader = wrapped_for(way, new, other)
    said = loader.load_compression_shards(everyone)
    if new.included():
        assert "parameters: the anchors, as saved" in said, said
        for key, value in other.state_dict().items():
            assert torch.equal(value, ends[key]), f"{key} is not what synchronize() left"
    hvd.barrier()
    loader.close()


def check_on_as_many_ranks_each_loads_its_own_and_keeps_its_way() -> None:
    way = Way(every=4, density=0.25)
    model = make_model()
    optimizer = wrapped_for(way, WORLD, model)
    train(model, optimizer, 0, 7)
    kept = copied(model.state_dict())
    shards = hvd.allgather_object(copied(optimizer.compression_state_dict()))
    train(model, optimizer, 7, 12)
    final = copied(model.state_dict())
    model.load_state_dict(kept)
    assert "each its own" in optimizer.load_compression_shards(shards)
    train(model, optimizer, 7, 12)
    for key, value in model.state_dict().items():
        assert torch.equal(value, final[key]), f"{key} differs after a resume"
    hvd.barrier()
    optimizer.close()


def check_wrong_states_are_refused_before_anything_changes() -> None:
    model = make_model()
    optimizer = wrapped_for(Way(every=4), WORLD, model)
    train(model, optimizer, 0, 2)
    early = hvd.allgather_object(copied(optimizer.compression_state_dict()))
    train(model, optimizer, 2, 3)
    late = hvd.allgather_object(copied(optimizer.compression_state_dict()))
    before = copied(model.state_dict())
    with expect(ValueError, "got no state", "each rank that saved"):
        optimizer.load_compression_shards([])
    with expect(ValueError, "after the steps [2, 3]", "of one save"):
        optimizer.load_compression_shards([early[0], late[1]])
    with expect(ValueError, '"penstock"'):
        optimizer.load_compression_shards([early[0], {}])
    with expect(hvd.HorovodInternalError, "rank"):
        optimizer.load_compression_shards([early[1]])
    for key, value in model.state_dict().items():
        assert torch.equal(value, before[key]), f"{key} changed"
    assert optimizer.report()["steps"] == 3
    hvd.barrier()
    optimizer.close()


if __name__ == "__main__":
    hvd.init(process_sets=[ODD, FIRST])
    run_checks(globals())
