"""The outcome of a step's results, through every frontend: used results count, in any way of use;
states that are saved between backward and step; and the cost."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import Any

import torch
from ddp_support import SIZE, join_torch
from outcome_support import (
    DENSE,
    DOORS,
    TOPK,
    Hook,
    Views,
    Wrapped,
    backward,
    plain,
    same,
    same_state,
)
from support import close, loss_of, make_batch, make_model, mine, run_checks
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch import devices


def outcome_of(door: Any) -> Any:
    """The StepOutcome of a frontend with one set."""
    return (door.optimizer._exchange.outcome if isinstance(door, Wrapped)
            else door.kept._exchange._outcome)  # fmt: skip


# ---- used ----


def check_a_closure_gives_the_same_parameters_and_states_as_a_plain_loop() -> None:
    for make in DOORS:
        ends, states = [], []
        for with_closure in (False, True):
            door = make(TOPK)
            for step in range(6):

                def closure() -> None:
                    door.optimizer.zero_grad()  # noqa: B023
                    backward(door, step)  # noqa: B023

                if with_closure:
                    door.optimizer.step(closure)
                else:
                    closure()
                    door.averaged()
                    door.step()
                if step == 2:
                    states.append(door.state())
            ends.append(door.parameters())
            states.append(door.state())
            door.close()
        same(*ends)
        same_state(states[0], states[2])
        same_state(states[1], states[3])


def lbfgs(model: torch.nn.Module) -> Any:
    return torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=4)


def sgd(model: torch.nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def train_by_closure(forward: Any, optimizer: Any) -> None:
    x, y = make_batch(0, 4 * SIZE)
    for _ in range(3):

        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = loss_of(forward, mine(x), mine(y))
            loss.backward()
            return loss

        optimizer.step(closure)


def check_lbfgs_runs_several_backwards_in_a_step() -> None:
    reference = make_model()
    train_by_closure(DistributedDataParallel(reference), lbfgs(reference))
    for make in (Hook, Views, Wrapped):
        door = make(DENSE, optimize=lbfgs)
        train_by_closure(door.forward, door.optimizer)
        close(door.model, reference, tolerance=1e-4)
        counted = door.counters()
        assert counted["forgotten_steps"] == 0 and counted["steps"] >= 9, counted
        door.close()


def check_lbfgs_is_warned_of_once_where_the_scheme_keeps_values() -> None:
    for make in (Hook, Views, Wrapped):
        for scheme, optimize, n_warnings in ((TOPK, lbfgs, 1), (DENSE, lbfgs, 0), (TOPK, sgd, 0)):
            heard = io.StringIO()
            with redirect_stderr(heard):
                door = make(scheme, optimize=optimize)
                train_by_closure(door.forward, door.optimizer)
                door.close()
            expected = n_warnings if hvd.rank() == 0 else 0
            assert heard.getvalue().count("computes its gradients 3 times") == expected, heard.getvalue()


def check_gradients_that_the_user_replaced_by_others_made_from_them_were_used() -> None:
    for make in DOORS:
        door = make(TOPK)
        for step in range(4):
            door.optimizer.zero_grad()
            backward(door, step)
            door.averaged()
            for parameter in door.model.parameters():
                parameter.grad = parameter.grad * 0.5
            door.step()
        before = door.state()
        assert door.counters()["forgotten_steps"] == 0
        same(door.state(), before)
        door.close()


def check_two_backwards_without_no_sync_keep_the_sum_of_what_was_computed() -> None:
    # At first nothing of one gradient is sent, but the result of the other gradient is kept.
    scheme = TOPK.replace("0.1", "0.2\nscope = \"bucket\"")
    for make in (Hook, Views):
        torch.manual_seed(0)
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(6, 4), "b": torch.nn.Linear(6, 4)})
        start = [one.detach().clone() for one in model.parameters()]
        door = make(scheme, model=Both(model), optimize=lambda m: torch.optim.SGD(m.parameters(), 1))
        total = [torch.zeros_like(one) for one in start]
        for step in range(30):
            door.optimizer.zero_grad()
            for half in range(2):
                x = torch.randn(4, 6) if step < 4 else torch.zeros(4, 6)
                (door.forward(x) * (0.0 if step >= 4 else 1.0)).sum().backward()
                for number, grad in enumerate(grads_of(model, x, step)):
                    total[number] += grad
            door.step()
        for number, (one, first) in enumerate(zip(model.parameters(), start)):
            want = hvd.allreduce(total[number])
            torch.testing.assert_close(first - one.detach(), want, rtol=1e-5, atol=1e-5)
        door.close()


class Both(torch.nn.Module):
    """The second layer's gradients are a thousandth of the first one's."""

    def __init__(self, layers: torch.nn.ModuleDict) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers["a"](x) + 1e-3 * self.layers["b"](x)


def grads_of(model: torch.nn.ModuleDict, x: torch.Tensor, step: int) -> list[torch.Tensor]:
    factor = 0.0 if step >= 4 else 1.0
    weight, bias = x.sum(0).expand(4, 6) * factor, torch.full((4,), 4.0) * factor
    return [weight, bias, 1e-3 * weight, 1e-3 * bias]


# ---- saved in between ----


def check_a_save_between_backward_and_step_changes_nothing_and_has_nothing_of_the_step() -> None:
    for make in DOORS:
        ends = []
        for saves in (False, True):
            door = make(TOPK)
            plain(door, range(3))
            for step in range(3, 6):
                before = door.state()
                door.optimizer.zero_grad()
                backward(door, step)
                door.averaged()
                if saves:
                    same(door.state(), before)
                door.step()
                if saves:
                    assert not all(torch.equal(a, b) for a, b in zip(door.state(), before))
            ends.append(door.parameters())
            door.close()
        same(*ends)


def check_a_plain_loop_counts_every_step_under_every_option_of_ddp() -> None:
    ends = []
    for options in (
        {},
        {"bucket_cap_mb": 0.0002},
        {"static_graph": True},
        {"static_graph": True, "gradient_as_bucket_view": True},
        {"find_unused_parameters": True, "gradient_as_bucket_view": True},
    ):
        door = Hook(TOPK, **options)
        plain(door, range(5))
        state = door.state()
        assert (door.counters()["steps"], door.counters()["forgotten_steps"]) == (5, 0), options
        backward(door, 5)
        door.optimizer.zero_grad()
        plain(door, range(6, 7))
        assert (door.counters()["steps"], door.counters()["forgotten_steps"]) == (5, 1), options
        ends.append(door.parameters())
        same(ends[-1], ends[0])
        assert state
        door.close()


# ---- the cost ----


def check_a_plain_loop_reads_no_gradient_once_more() -> None:
    read: list[int] = []
    is_zero, devices._is_zero = devices._is_zero, lambda one: read.append(1) or is_zero(one)
    try:
        for make in DOORS:
            door = make(TOPK)
            for set_to_none in (True, False):
                for step in range(3):
                    door.optimizer.zero_grad(set_to_none=set_to_none)
                    backward(door, step)
                    door.averaged()
                    door.step()
            door.close()
            assert not read, f"{len(read)} gradients were read by {make.__name__}"
    finally:
        devices._is_zero = is_zero


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
