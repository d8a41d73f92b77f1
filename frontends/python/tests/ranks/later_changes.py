"""Users' changes after the optimizer was wrapped: momentum that comes later, parameters that are
unfrozen."""

from __future__ import annotations

from typing import Any, Callable

import torch
from support import expect, run_checks, same_bits_on_all_ranks

import penstock.torch as hvd

DGC = '[scheme]\ncompressor = "dgc"\nmemory = "dgc"\n[compressor.dgc]\ndensity = 0.5\n'


def make_model() -> torch.nn.Sequential:
    torch.manual_seed(3)
    return torch.nn.Sequential(torch.nn.Linear(6, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))


def wrap(model: torch.nn.Module, **options: Any) -> Any:
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    return hvd.DistributedOptimizer(sgd, model.named_parameters(), **options)


def train(optimizer: Any, model: torch.nn.Module, steps: int = 4) -> None:
    for step in range(steps):
        optimizer.zero_grad()
        generator = torch.Generator().manual_seed(10 * step + hvd.rank())
        model(torch.randn(8, 6, generator=generator)).square().mean().backward()
        optimizer.step()


def cycles_momentum(optimizer: Any) -> None:
    torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=20)


def loads_momentum(optimizer: Any) -> None:
    state = optimizer.state_dict()
    state["param_groups"][0]["momentum"] = 0.9
    optimizer.load_state_dict(state)


CHANGES: tuple[Callable[[Any], None], ...] = (cycles_momentum, loads_momentum)


def check_momentum_that_comes_later_is_refused_where_compression_has_its_own() -> None:
    for change in CHANGES:
        model = make_model()
        optimizer = wrap(model, scheme=DGC)
        train(optimizer, model)
        change(optimizer)
        with expect(hvd.HorovodInternalError, "it would count twice"):
            train(optimizer, model)
        optimizer.close()


def check_momentum_that_comes_later_is_fine_elsewhere() -> None:
    for change in CHANGES:
        model = make_model()
        optimizer = wrap(model)
        change(optimizer)
        train(optimizer, model)
        same_bits_on_all_ranks(model)
        optimizer.close()


def check_a_parameter_that_is_unfrozen_is_refused_until_the_optimizer_is_wrapped_again() -> None:
    model = make_model()
    model[0].weight.requires_grad_(False)
    optimizer = wrap(model)
    train(optimizer, model)
    model[0].weight.requires_grad_(True)
    with expect(ValueError, "parameter 0.weight did not require gradients when"):
        train(optimizer, model)
    optimizer = hvd.DistributedOptimizer(optimizer, model.named_parameters())
    before = model[0].weight.detach().clone()
    train(optimizer, model)
    assert not torch.equal(model[0].weight, before)
    same_bits_on_all_ranks(model)
    optimizer.close()


if __name__ == "__main__":
    hvd.init()
    run_checks(globals())
