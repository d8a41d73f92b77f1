"""The outcome of a step's results, through every frontend: results that a user throws away leave no
trace."""

from __future__ import annotations

from typing import Any

import torch
from ddp_support import RANK, SIZE, join_torch, sgd
from outcome_support import (
    DENSE,
    DOORS,
    SIGNS,
    TOPK,
    Hook,
    Views,
    Wrapped,
    backward,
    few_schemes,
    plain,
    same,
    same_state,
)
from support import close, expect, loss_of, make_batch, mine, needs_torch, run_checks

import penstock.torch as hvd

BAD = 1e6  # the factor of a batch that a guard leaves out


def check_a_step_that_a_guard_leaves_out_leaves_the_state_to_the_bit() -> None:
    for make in DOORS:
        for name, scheme in few_schemes(make).items():
            for set_to_none in (True, False):
                door = make(scheme)
                plain(door, range(4))
                before = door.state()
                door.optimizer.zero_grad(set_to_none=set_to_none)
                for attempt in range(3):
                    backward(door, attempt, BAD)
                    door.averaged()
                    same(door.state(), before)  # between backward and the decision
                    door.optimizer.zero_grad(set_to_none=set_to_none)
                same(door.state(), before)
                counted = door.counters()
                assert (counted["steps"], counted["forgotten_steps"]) == (4, 2), (name, counted)
                door.close()


def check_a_loop_with_a_guard_recovers_as_dense_training_does() -> None:
    def left_out(make: Any, scheme: str) -> list[int]:
        door, skipped = make(scheme), []
        for step in range(10):
            door.optimizer.zero_grad()
            backward(door, step, BAD if step == 4 else 1.0)
            door.averaged()
            norm = torch.stack([one.grad.norm() for one in whole(door.model)]).norm()
            if hvd.allreduce(norm) > 1e3:
                skipped.append(step)
                continue
            door.step()
        door.close()
        return skipped

    for make in DOORS:
        for scheme in (DENSE, *few_schemes(make).values()):
            assert left_out(make, scheme) == [4], (make.__name__, scheme)


def whole(model: torch.nn.Module) -> list[Any]:
    """Parameters whose gradients this rank can read without other ranks."""

    class Local:
        def __init__(self, grad: torch.Tensor) -> None:
            self.grad = grad

    return [Local(getattr(one.grad, "_local_tensor", one.grad)) for one in model.parameters()]


def gan(make: Any, scheme: str, throw: bool, critics: int = 1, first: str = "D") -> Any:
    """throw: G's backward also fills D's gradients. Otherwise D's parameters are frozen during
    G's backward."""
    torch.manual_seed(0)
    doors = [
        make(scheme, model=torch.nn.Sequential(torch.nn.Linear(4, 8)), optimize=sgd),
        make(scheme, model=torch.nn.Sequential(torch.nn.Linear(8, 6), torch.nn.Linear(6, 1)),
             optimize=sgd),
    ]  # fmt: skip
    G, D = doors
    random = torch.Generator().manual_seed(7 + RANK)

    def train_d() -> None:
        D.optimizer.zero_grad()
        real, z = (torch.randn(8, n, generator=random) for n in (8, 4))
        with torch.no_grad():
            fake = G.model(z)
        (D.forward(torch.cat([real, fake])).square().mean()).backward()
        D.averaged()
        D.step()

    def train_g() -> None:
        G.optimizer.zero_grad()
        z = torch.randn(8, 4, generator=random)
        if throw:
            D.forward(G.forward(z)).mean().backward()
        else:
            weights = {name: one.detach() for name, one in D.model.named_parameters()}
            torch.func.functional_call(D.model, weights, (G.forward(z),)).mean().backward()
        G.averaged()
        G.step()
        if throw and make is Wrapped:
            D.averaged()
            D.optimizer.zero_grad()

    for _ in range(3):
        for turn in (train_d, train_g) if first == "D" else (train_g, train_d):
            for _ in range(critics if turn is train_d else 1):
                turn()
    if throw:
        D.optimizer.zero_grad()
    return [G.parameters(), D.parameters()], [G.state(), D.state()], doors


def check_a_generators_backward_leaves_no_trace_in_the_discriminator() -> None:
    for make in (Hook, Views, Wrapped):
        for scheme, options in ((TOPK, {"critics": 20}), (TOPK, {"first": "G"}), (SIGNS, {})):
            thrown, frozen = (gan(make, scheme, throw, **options) for throw in (True, False))
            for number in range(2):
                same(thrown[0][number], frozen[0][number])
                same_state(thrown[1][number], frozen[1][number])
            for door in (*thrown[2], *frozen[2]):
                door.close()


def check_a_step_in_the_direction_of_a_gradient_that_is_thrown_away() -> None:
    # SAM. If all ranks have equal data, the gradients of one rank are the average.
    def train(make: Any, local: bool) -> list[torch.Tensor]:
        door = make(TOPK.replace("0.1", "1.0").replace("residual", "none"))
        x, y = make_batch(0, 8)
        for _ in range(6):
            door.optimizer.zero_grad()
            if local:
                with door.local():
                    loss_of(door.forward, x, y).backward()
            else:
                loss_of(door.forward, x, y).backward()
            ups = [one.grad * 0.1 for one in door.model.parameters()]
            with torch.no_grad():
                for one, up in zip(door.model.parameters(), ups):
                    one.add_(up)
            door.optimizer.zero_grad()
            loss_of(door.forward, x, y).backward()
            with torch.no_grad():
                for one, up in zip(door.model.parameters(), ups):
                    one.sub_(up)
            door.step()
        counted = door.counters()
        door.save()
        assert counted["forgotten_steps"] == (0 if local else 6), counted
        parameters = door.parameters()
        door.close()
        return parameters

    for make in (Hook, Views):
        for a, b in zip(train(make, True), train(make, False)):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


class Two(torch.nn.Module):
    """Two branches. A forward may leave out a branch."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.a, self.b = (torch.nn.Linear(8, 4, bias=False) for _ in range(2))

    def forward(self, x: torch.Tensor, both: bool) -> torch.Tensor:
        return self.a(x) + self.b(x) if both else self.a(x)


def check_what_ddp_drops_of_a_branch_that_no_rank_used_is_kept() -> None:
    for make in (Hook, Views):
        for set_to_none in (True, False):
            door = make(
                TOPK, model=Two(), find_unused_parameters=True,
                optimize=lambda model: torch.optim.SGD(model.parameters(), lr=1.0),
            )  # fmt: skip
            start = door.parameters()
            total = [torch.zeros_like(one) for one in start]
            for step in range(40):
                x = torch.randn(4, 8) if step < 8 else torch.zeros(4, 8)
                both = step % 2 == 0 or step >= 8
                door.optimizer.zero_grad(set_to_none=set_to_none)
                door.forward(x, both).sum().backward()
                for number in range(2 if both else 1):
                    total[number] += x.sum(0).expand(4, 8)
                door.step()
            for number, (now, first) in enumerate(zip(door.parameters(), start)):
                want = hvd.allreduce(total[number])
                torch.testing.assert_close(first - now, want, rtol=1e-5, atol=1e-5)
            door.close()


def check_one_of_two_optimizers_throws_its_part_away() -> None:
    def train(together: bool) -> list[torch.Tensor]:
        torch.manual_seed(2)
        layers = [torch.nn.Linear(6, 4), torch.nn.Linear(6, 4)]
        models = [torch.nn.ModuleList(layers)] if together else layers
        doors = [Hook(TOPK, model=Sum(model)) for model in models]
        optimizers = [torch.optim.SGD(layer.parameters(), lr=0.1) for layer in layers]
        for step in range(8):
            for optimizer in optimizers:
                optimizer.zero_grad()
            x = torch.randn(4, 6, generator=torch.Generator().manual_seed(10 * step + RANK))
            thrown = step % 3 == 1
            for number, door in enumerate(doors):
                if together or number == 0 or not thrown:
                    door.forward(x).square().sum().backward() if not together else sum(
                        out.square().sum() for out in door.forward(x)
                    ).backward()
            optimizers[0].step()
            if not thrown:
                optimizers[1].step()
        bits = [one.detach().clone() for layer in layers for one in layer.parameters()]
        for door in doors:
            door.close()
        return bits

    same(train(True), train(False))


class Sum(torch.nn.Module):
    """A layer, or several side by side."""

    def __init__(self, layers: Any) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, x: torch.Tensor) -> Any:
        if isinstance(self.layers, torch.nn.ModuleList):
            return tuple(layer(x) for layer in self.layers)
        return self.layers(x)


@needs_torch((2, 3), "GradScaler for the CPU")
def check_a_step_that_a_scaler_leaves_out_leaves_the_state_to_the_bit() -> None:
    def fused(model: torch.nn.Module) -> Any:
        return torch.optim.SGD(model.parameters(), lr=0.1, fused=True)

    for make in (Hook, Views, Wrapped):
        for optimize in (sgd, fused):
            for scheme in (TOPK, SIGNS):
                door = make(scheme, optimize=optimize)
                scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=100)
                states = []
                for step in range(6):
                    door.optimizer.zero_grad()
                    door.set_scale(4.0)
                    x, y = make_batch(step, 4 * SIZE)
                    spoilt = float("inf") if step == 3 and RANK == SIZE - 1 else 1.0
                    loss = loss_of(door.forward, mine(x), mine(y)) * spoilt
                    scaler.scale(loss).backward()
                    scaler.step(door.optimizer)
                    scaler.update(4.0)
                    if step == 3:
                        door.optimizer.zero_grad()
                    states.append(door.state())
                same(states[3], states[2])
                assert door.counters()["forgotten_steps"] == 1
                assert all(one.isfinite().all() for one in door.parameters())
                door.close()


def check_it_can_be_told_outright() -> None:
    door = Hook(TOPK)
    plain(door, range(3))
    before = door.state()
    backward(door, 3)
    door.kept.step_end("forget")
    same(door.state(), before)
    door.optimizer.zero_grad()
    backward(door, 3)
    door.optimizer.zero_grad()
    door.kept.step_end("applied")
    assert (door.counters()["steps"], door.counters()["forgotten_steps"]) == (4, 1)
    with expect(ValueError, '"applied" or "forget"'):
        door.kept.step_end(True)  # type: ignore[arg-type]
    door.close()
    wrapped = Wrapped(TOPK)
    plain(wrapped, range(3))
    before = wrapped.state()
    wrapped.optimizer.zero_grad()
    backward(wrapped, 3)
    wrapped.optimizer.skip_step()
    same(wrapped.state(), before)
    wrapped.close()


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
