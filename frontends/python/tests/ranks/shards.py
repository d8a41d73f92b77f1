"""Three or four ranks load the states that two ranks have saved."""

from __future__ import annotations

import torch
from support import equal, loss_of, make_batch, make_model, mine, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd

TOPK = '[scheme]\ncompressor = "topk"\nmemory = "residual"\n[compressor.topk]\ndensity = 0.2\n'


def begin() -> None:
    global two
    two = hvd.ProcessSet([0, 1])
    hvd.init(process_sets=[two])


def wrap(model: torch.nn.Module, **options: object) -> torch.optim.Optimizer:
    return hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1),
        named_parameters=model.named_parameters(),
        scheme=TOPK,
        **options,
    )


def step_of(optimizer: torch.optim.Optimizer, model: torch.nn.Module, step: int) -> None:
    optimizer.zero_grad()
    x, y = make_batch(step, 4 * hvd.size())
    loss_of(model, mine(x), mine(y)).backward()
    optimizer.step()


def check_what_two_ranks_saved_all_load() -> None:
    theirs, model = make_model(), make_model()
    saver = wrap(theirs, process_set=two)
    saved = {}
    if two.included():
        step_of(saver, theirs, 0)
        saved = saver.compression_state_dict()
    shards = [shard for shard in hvd.allgather_object(saved) if shard]
    assert len(shards) == 2
    loader = wrap(model)
    said = loader.load_compression_shards(shards)
    assert "mass 'residual' of" in said, said
    step_of(loader, model, 1)
    same_bits_on_all_ranks(model)
    whole = hvd.allgather_object(loader.compression_state_dict())
    said = loader.load_compression_shards(whole)
    assert "each its own" in said, said
    equal(loader.compression_state_dict()["penstock"], whole[hvd.rank()]["penstock"])


if __name__ == "__main__":
    begin()
    run_checks(globals())
