"""States that one number of ranks saved under the hook are loaded by another number: the unsent
values reach the parameters, and nothing more. Arguments: a folder, and "save" or "load"."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from ddp_support import RANK, SIZE, TOPK, bits_of, join_torch, sgd, train, wrap
from support import expect, loss_of, make_batch, make_model, run_checks

FOLDER, SAVES = Path(sys.argv[1]), sys.argv[2] == "save"
SMALL = {"bucket_cap_mb": 0.0002}  # several buckets, which DDP arranges again after a step


def let_out(ddp, optimizer) -> None:
    """Steps with zero gradients, until all unsent values have reached the parameters."""
    x, y = make_batch(0, 4)
    for _ in range(60):
        optimizer.zero_grad()
        (loss_of(ddp, x, y) * 0).backward()
        optimizer.step()


def begin_from(saved, model) -> None:
    with torch.no_grad():
        for parameter, value in zip(model.parameters(), saved["model"]):
            parameter.copy_(value)


def saved_by_all() -> list[dict]:
    count = len(list(FOLDER.glob("rank*.pt")))
    return [torch.load(FOLDER / f"rank{rank}.pt") for rank in range(count)]


def same(model, expected) -> None:
    for parameter, value in zip(model.parameters(), expected):
        torch.testing.assert_close(parameter.detach(), value, rtol=0, atol=1e-5)


def save() -> None:
    model = make_model()
    ddp, state = wrap(model, TOPK, **SMALL)
    optimizer = sgd(model)
    train(ddp, optimizer, 8)
    saved = {"model": bits_of(model), "compression": state.state_dict()}
    let_out(ddp, optimizer)
    moved = max(float((p - q).abs().max()) for p, q in zip(model.parameters(), saved["model"]))
    assert moved > 1e-3, "hardly anything was kept"
    torch.save({**saved, "end": bits_of(model)}, FOLDER / f"rank{RANK}.pt")


def check_that_before_the_first_backward_or_after_what_is_owed_comes() -> None:
    if SAVES:
        return save()
    saved = saved_by_all()
    states = [one["compression"] for one in saved]
    model = make_model()
    ddp, state = wrap(model, TOPK, **SMALL)
    optimizer = sgd(model)
    assert state.loaded == ""
    for is_first in (True, False):  # before the first backward, and in the middle of training
        said = state.load_shards(states)
        assert ("first backward" in said) == is_first
        if is_first:
            with expect(ValueError, "save after the first backward"):
                state.state_dict()
        else:
            assert said == state.loaded
        begin_from(saved[0], model)
        let_out(ddp, optimizer)
        word = "each its own" if len(states) == SIZE else "their mean over ranks did not change"
        assert word in state.loaded, state.loaded
        same(model, saved[0]["end"])
        train(ddp, optimizer, 3)


def check_that_what_is_no_state_is_refused() -> None:
    if SAVES:
        return
    _, state = wrap(make_model(), TOPK)
    with expect(ValueError, "penstock"):
        state.load_shards([{}])


if __name__ == "__main__":
    join_torch()
    run_checks(globals())
