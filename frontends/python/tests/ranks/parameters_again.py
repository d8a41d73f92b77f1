"""Parameters are compared again after each number of steps that the run names, at every door."""

from __future__ import annotations

from typing import Any, Callable

import torch
from ddp_support import RANK, SIZE, join_torch, wrap as wrap_in_ddp
from local_steps_support import wrap as wrap_apart
from support import expect, run_checks

import penstock.torch as hvd

CONFIG = '[runtime]\ncheck_parameters = "error"\ncheck_parameters_every = 3\n'
Make = Callable[[torch.nn.Module], tuple[Any, Any]]  # the module to call, and its optimizer


def by_optimizer(model: torch.nn.Module) -> tuple[Any, Any]:
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, hvd.DistributedOptimizer(inner, model.named_parameters())


def one_step_late(model: torch.nn.Module) -> tuple[Any, Any]:
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    scheme = hvd.Scheme(apply="previous")
    return model, hvd.DistributedOptimizer(inner, model.named_parameters(), scheme=scheme)


def by_hook(model: torch.nn.Module) -> tuple[Any, Any]:
    ddp, _ = wrap_in_ddp(model)
    return ddp, torch.optim.SGD(model.parameters(), lr=0.1)


def apart(model: torch.nn.Module) -> tuple[Any, Any]:
    inner = torch.optim.SGD(model.parameters(), lr=0.1)
    return model, wrap_apart(model, inner, every=1, outer=hvd.OuterStep(lr=1.0, momentum=0.0))


DOORS: list[Make] = [by_optimizer, one_step_late, by_hook, apart]


def step(module: Any, optimizer: Any, number: int) -> None:
    optimizer.zero_grad()
    generator = torch.Generator().manual_seed(10 * number + RANK)
    module(torch.randn(4, 3, generator=generator)).square().mean().backward()
    optimizer.step()


def model_of(seed: int) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Linear(3, 2)


def check_equal_ranks_train_on() -> None:
    for make in DOORS:
        module, optimizer = make(model_of(1))
        for number in range(8):
            step(module, optimizer, number)
        if make is not by_hook:
            optimizer.close()


def check_a_bit_that_has_changed_on_one_rank_is_an_error_on_every_rank() -> None:
    for make in DOORS:
        model = model_of(2)
        module, optimizer = make(model)
        for number in range(4):
            step(module, optimizer, number)
        if RANK == SIZE - 1:
            # LocalSteps compares anchors.
            changed = optimizer.anchors()["weight"] if make is apart else model.weight
            with torch.no_grad():
                changed.view(torch.int32)[0, 0] ^= 1
        with expect(hvd.HorovodInternalError, "differs between ranks after 6 steps"):
            for number in range(4, 9):
                step(module, optimizer, number)


if __name__ == "__main__":
    hvd.init(config_text=CONFIG)
    join_torch()
    run_checks(globals())
