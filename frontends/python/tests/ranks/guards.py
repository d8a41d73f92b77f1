"""Loops whose guard throws away steps because an earlier step has left large values in the
memories. A call or `forget_limit` (the argument) lets go of these values."""

from __future__ import annotations

import sys
from typing import Any

import torch
from ddp_support import join_torch
from outcome_support import DENSE, DOORS, TOPK, Sharded, Wrapped, backward
from support import expect, run_checks

import penstock.torch as hvd

SPIKE = 1e4
LIMIT = 10.0
FORGET_LIMIT = int(sys.argv[1]) if len(sys.argv) > 1 else 0


def norm_of(door: Any) -> float:
    gradients = [one.grad for one in door.model.parameters()]
    whole = [one.full_tensor() if door.__class__ is Sharded else one for one in gradients]
    return float(torch.stack([one.norm() for one in whole]).norm())


def let_go(door: Any) -> None:
    holders = (door.reducers.values() if isinstance(door, Sharded)
               else [door.optimizer] if isinstance(door, Wrapped) else [door.kept])  # fmt: skip
    for holder in holders:
        holder.let_go()


def train(make: Any, at_limit: Any = None) -> list[bool]:
    """Applies a step with a spike. Returns for each of the next eight steps whether it was
    taken."""
    door, taken = make(TOPK), []
    for step in range(9):
        door.optimizer.zero_grad()
        backward(door, step, SPIKE if step == 0 else 1.0)
        door.averaged()
        taken.append(step == 0 or norm_of(door) < LIMIT)
        if taken[-1]:
            door.step()
        elif at_limit is not None and taken.count(False) == 3:
            at_limit(door)
    door.close()
    return taken[1:]


def check_what_a_spike_has_left_is_let_go_after_so_many_steps_and_else_never() -> None:
    for make in DOORS:
        taken = train(make)
        expected = [FORGET_LIMIT != 0 and step >= FORGET_LIMIT for step in range(8)]
        expect(taken == expected, f"{make.__name__} takes {taken}")


def check_let_go_ends_that() -> None:
    for make in DOORS:
        taken = train(make, let_go)
        expect(taken == [False] * 3 + [True] * 5, f"{make.__name__} takes {taken}")


if __name__ == "__main__":
    limit = f"[runtime]\nforget_limit = {FORGET_LIMIT}\n" if FORGET_LIMIT else ""
    hvd.init(config_text=DENSE + limit)
    join_torch()
    run_checks(globals())
