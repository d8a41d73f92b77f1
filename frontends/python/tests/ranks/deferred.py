"""Deferred updates (DeAR): results equal those of immediate updates, also if code reads the
parameters in between."""

from __future__ import annotations

import copy
import pickle
from typing import Any, Callable

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

CONFIG = """
[scheme]
scheduler = "dear"
route = "split"
"""
STEPS = 5


def adam(model: torch.nn.Module) -> torch.optim.Optimizer:
    decayed = [p for p in model.parameters() if p.dim() > 1]
    rest = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": rest}], lr=0.01)


def sgd(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def wrap(model: torch.nn.Module, make: Callable = sgd, **options: Any) -> Any:
    named = model.named_parameters()
    return hvd.DistributedOptimizer(make(model), named_parameters=named, **options)


def outstanding(optimizer: Any) -> int:
    return len(optimizer._deferred.outstanding)


def check_equals_updates_at_once() -> None:
    for make in (sgd, adam):
        model, plain = make_model(), make_model()
        optimizer, other = wrap(model, make), make(plain)
        schedulers = [
            torch.optim.lr_scheduler.StepLR(o, step_size=1, gamma=0.5) for o in (optimizer, other)
        ]
        seen = 0
        for step in range(STEPS):
            x, y = make_batch(step, 4 * hvd.size())
            optimizer.zero_grad()
            loss_of(model, mine(x), mine(y)).backward()
            optimizer.step()
            seen += outstanding(optimizer)
            other.zero_grad()
            loss_of(plain, x, y).backward()
            other.step()
            for scheduler in schedulers:
                scheduler.step()
        # All six parameters in each step, because the hooks are installed from the start.
        assert seen == 6 * STEPS, f"{seen} updates were deferred"
        before = [p.clone() for p in model.parameters()]
        optimizer.flush()
        assert any(not torch.equal(p, q) for p, q in zip(model.parameters(), before))
        assert outstanding(optimizer) == 0
        close(model, plain)
        same_bits_on_all_ranks(model)
        assert optimizer.counters()["steps"] == STEPS


def check_whoever_looks_sees_the_update() -> None:
    def stepped() -> Any:
        model = make_model()
        optimizer = wrap(model)
        for step in range(2):
            optimizer.zero_grad()
            loss_of(model, *make_batch(step, 4)).backward()
            optimizer.step()
        assert outstanding(optimizer) == 6
        return model, optimizer

    expected, optimizer = stepped()
    optimizer.flush()
    looks = {
        "model.state_dict()": lambda m, o: m.state_dict(),
        "optimizer.state_dict()": lambda m, o: o.state_dict(),
        "optimizer.load_state_dict()": lambda m, o: o.load_state_dict(
            copy.deepcopy(optimizer.state_dict())
        ),
        "evaluation": lambda m, o: m.eval()(torch.ones(1, 5)),
        "no_grad": lambda m, o: torch.no_grad()(m)(torch.ones(1, 5)),
        "broadcast_parameters": lambda m, o: hvd.broadcast_parameters(m.named_parameters(), 0),
        "close": lambda m, o: o.close(),
    }
    for name, look in looks.items():
        model, optimizer_of = stepped()
        look(model, optimizer_of)
        assert outstanding(optimizer_of) == 0, f"{name} left updates outstanding"
        for p, q in zip(model.parameters(), expected.parameters()):
            assert torch.equal(p, q), f"{name}: another value than after flush"
    pickle.dumps(expected)
    other = make_model().eval()
    model, optimizer = stepped()
    other(torch.ones(1, 5))
    with torch.no_grad():
        make_model()(torch.ones(1, 5))
    assert outstanding(optimizer) == 6, "another model's evaluation waited for the updates"
    optimizer.flush()


def check_clipping_synchronizes_at_once() -> None:
    model, plain = make_model(), make_model()
    optimizer, other = wrap(model), sgd(plain)
    for step in range(STEPS):
        x, y = make_batch(step, 4 * hvd.size())
        optimizer.zero_grad()
        loss_of(model, mine(x), mine(y)).backward()
        optimizer.synchronize()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        with optimizer.skip_synchronize():
            optimizer.step()
        assert outstanding(optimizer) == 0
        other.zero_grad()
        loss_of(plain, x, y).backward()
        torch.nn.utils.clip_grad_norm_(plain.parameters(), 0.05)
        other.step()
    close(model, plain)


def check_accumulated_scaled_and_skipped_steps() -> None:
    model, plain = make_model(), make_model()
    optimizer = wrap(model, backward_passes_per_step=2, gradient_predivide_factor=2.0)
    other = sgd(plain)
    for step in range(STEPS):
        x, y = make_batch(step, 4 * hvd.size())
        scale = 2.0**step
        optimizer.zero_grad()
        optimizer.set_grad_scale(scale)
        for part in range(2):
            loss_of(model, mine(x)[part::2], mine(y)[part::2]).div(2).mul(scale).backward()
        if step % 2:  # a skipped step between deferred steps, then the step again
            optimizer.skip_step()
            optimizer.zero_grad()
            optimizer.set_grad_scale(1.0)
            for part in range(2):
                loss_of(model, mine(x)[part::2], mine(y)[part::2]).div(2).backward()
            optimizer.step()
        else:
            optimizer.synchronize()
            for p in model.parameters():
                p.grad.div_(scale)
            with optimizer.skip_synchronize():
                optimizer.step()
        other.zero_grad()
        loss_of(plain, x, y).backward()
        other.step()
    optimizer.flush()
    close(model, plain)


class Attention(torch.nn.Module):
    """Uses the weight of `out_proj` without a forward of that module, and a parameter whose
    module has no forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.attention = torch.nn.MultiheadAttention(4, 2, batch_first=True)
        self.head = torch.nn.Linear(4, 1)
        self.raw = torch.nn.ParameterList([torch.nn.Parameter(torch.ones(4))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(x, x, x, need_weights=False)[0] * self.raw[0])


def check_parameters_that_no_forward_announces() -> None:
    model, plain = Attention(), Attention()
    optimizer, other = wrap(model), sgd(plain)
    for step in range(STEPS):
        x = torch.randn(2 * hvd.size(), 3, 4, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        model(mine(x)).square().mean().backward()
        optimizer.step()
        other.zero_grad()
        plain(x).square().mean().backward()
        other.step()
    optimizer.flush()
    close(model, plain)


class Two(torch.nn.Module):
    """Two layers. A forward may use one layer only, by a call or by its weight alone."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(13)
        self.first, self.second = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, way: str) -> torch.Tensor:
        if way == "first":
            return self.first(x)
        if way == "bare":
            return self.first(x) + torch.nn.functional.linear(
                x, self.second.weight, self.second.bias
            )
        return self.first(x) + self.second(x)


def check_a_layer_that_a_forward_leaves_out() -> None:
    model, plain = Two(), Two()
    optimizer, other = wrap(model), sgd(plain)
    for step, way in enumerate(["both", "first", "first", "both", "first"]):
        x, y = make_batch(step, 4 * hvd.size())
        optimizer.zero_grad()
        loss_of(lambda rows: model(rows, way), mine(x), mine(y)).backward()
        optimizer.step()
        other.zero_grad(set_to_none=False)  # layers that are left out take part with zeros
        loss_of(lambda rows: plain(rows, way), x, y).backward()
        other.step()
    optimizer.flush()
    close(model, plain)


def check_a_stale_use_is_named() -> None:
    model = Two()
    optimizer = wrap(model)
    loss_of(lambda rows: model(rows, "both"), *make_batch(0, 4)).backward()
    optimizer.step()
    optimizer.zero_grad()
    with expect(RuntimeError, "second.", "without the forward of its module", "flush()"):
        loss_of(lambda rows: model(rows, "bare"), *make_batch(1, 4)).backward()


if __name__ == "__main__":
    hvd.init(config_text=CONFIG)
    run_checks(globals())
