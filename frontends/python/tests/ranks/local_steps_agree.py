"""LocalSteps: what ranks must share is compared, and a difference is an error on every rank."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from local_steps_support import AVERAGE, drift, end, make_model, train, wrap
from support import run_checks

import penstock.torch as hvd
from penstock.torch import HorovodInternalError


def is_last() -> bool:
    return hvd.rank() == hvd.size() - 1


def refused(pattern: str, call: Callable[[], Any]) -> None:
    """The call fails on this rank, and so on each rank that makes this check, with these words."""
    try:
        call()
    except HorovodInternalError as error:
        assert re.search(pattern, str(error)), f"{error}\nexpected: {pattern}"
        return
    raise AssertionError(f"nothing was refused, expected: {pattern}")


def check_arguments_that_differ_are_refused_on_every_rank_with_both_values() -> None:
    for name, mine, other in (
        ("every", 6, 8),
        ("fragments", 2, 3),
        ("delay", 0, 1),
        ("mix", 0.0, 0.5),
        ("outer", hvd.OuterStep(lr=0.7), hvd.OuterStep(lr=0.8)),
        ("outer", hvd.OuterStep(momentum=0.0), None),
    ):
        arguments: dict[str, Any] = {"every": 24, "fragments": 1}
        arguments[name] = other if is_last() else mine
        shown = [re.escape(repr(AVERAGE if one is None else one)) for one in (mine, other)]
        refused(
            rf'"{name} = {shown[0]}".*rank {hvd.size() - 1} has "{name} = {shown[1]}"',
            lambda given=arguments: wrap(make_model(), **given),
        )
    end(wrap(make_model(), every=2))  # the run goes on


def check_ranks_that_made_other_numbers_of_steps_are_told_both() -> None:
    model = make_model()
    optimizer = wrap(model, every=4)
    train(model, optimizer, 0, 2 if is_last() else 3)
    refused(r'"steps = 3".*has "steps = 2"', optimizer.synchronize)
    refused(r'"steps = 3".*has "steps = 2"', optimizer.synchronize)
    optimizer.close()


def check_an_outer_rate_that_one_rank_changed_is_named() -> None:
    model = make_model()
    optimizer = wrap(model, every=1)
    if is_last():
        optimizer.outer = hvd.OuterStep(lr=0.25)
    drift(model, 1)
    refused(r"lr=0\.7, .*has \"outer = OuterStep\(lr=0\.25", optimizer.step)
    optimizer.close()


def check_a_layer_that_one_rank_froze_is_named() -> None:
    model = make_model()
    optimizer = wrap(model, every=2, delay=1)
    if is_last():
        model[2].weight.requires_grad_(False)

    def steps() -> None:
        for step in range(4):
            drift(model, step)
            optimizer.step()

    refused(r'"frozen parameters = none".*has "frozen parameters = 2\.weight"', steps)
    optimizer.close()


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
