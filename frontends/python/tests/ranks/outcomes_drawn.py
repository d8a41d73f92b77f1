"""Random loops like those of users: results that they throw away must leave no trace. Each loop
runs twice: as it is, and without the backwards whose results it throws away. Parameters and the
states of compression agree to the bit.

    outcomes_drawn.py FIRST COUNT      the seeds
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import Any

import torch
from ddp_support import SIZE, join_torch, part
from outcome_support import DOORS, KEEPING, Sharded, Wrapped, same, same_state
from support import loss_of, make_batch, run_checks, say

import penstock.torch as hvd

CONF = Path(__file__).resolve().parents[4] / "conf"
OF_CONF = (
    "topk-residual", "ef-sign", "power-sgd", "dgc", "qsgd", "one-bit", "sketch", "ef21-sgdm",
    "diana", "terngrad", "threshold", "gaussian-k", "acp-sgd", "adacomp", "signum", "s-sgd",
)  # fmt: skip
FLAT = ("topk-residual", "ef-sign", "qsgd", "terngrad", "threshold")  # for FSDP2

ACTIONS = (
    "plain", "closure", "accumulate", "twice", "guard", "guard", "guard tells", "probe", "probe",
    "overflow", "scaler", "generator", "clip", "clip a zeroed one", "save", "save between",
    "load", "load between",
)  # fmt: skip

SCALER = getattr(torch.amp, "GradScaler", None)  # for the CPU


def scheme_of(name: str) -> str:
    """A file of conf/ with the scheduler wfbp, so that buckets do not depend on measured times."""
    text = (CONF / f"{name}.toml").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^scheduler .*$", 'scheduler = "wfbp"', text)
    return re.sub(r"(?ms)^\[scheduler\..*?(?=^\[|\Z)", "", text)


class Loop:
    """One loop through one frontend. thrown: also run backwards whose results are thrown away."""

    def __init__(self, make: Any, scheme: str, two: bool, thrown: bool, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.thrown = thrown
        self.door = make(scheme, optimize=pair if two else one)
        self.step = 0
        self.saved: Any = None
        self.states: list[Any] = []

    def run(self, actions: list[str]) -> tuple[list[torch.Tensor], list[Any]]:
        for action in ["plain", "plain", "plain", *actions, "plain", "plain"]:
            self.step += 1
            getattr(self, action.replace(" ", "_"))()
        self.states.append(self.door.state())
        parameters = self.door.parameters()
        self.door.close()
        return parameters, self.states

    # ---- parts ----

    def zero(self) -> None:
        self.door.optimizer.zero_grad(set_to_none=self.drawn.random() < 0.5)

    def backward(self, factor: float = 1.0, half: int = 0) -> None:
        x, y = make_batch(1000 * half + self.step, 4 * SIZE)
        (loss_of(self.door.forward, part(x), part(y)) * factor).backward()

    def thrown_away(self, factor: float = 1.0) -> None:
        """A backward whose results the next zero_grad throws away."""
        if self.thrown:
            self.backward(factor, half=7)
            self.door.averaged()

    def used(self) -> None:
        self.backward()
        self.door.averaged()
        self.door.step()

    # ---- actions ----

    def plain(self) -> None:
        self.zero()
        self.used()

    def closure(self) -> None:
        def closure() -> None:
            self.zero()
            self.backward()

        self.door.optimizer.step(closure)

    def accumulate(self) -> None:
        self.zero()
        if not isinstance(self.door, Wrapped):
            with self.door.local():
                self.backward(half=1)
            if isinstance(self.door, Sharded):
                self.door.forward.set_requires_gradient_sync(True)
        self.used()

    def twice(self) -> None:
        self.zero()
        self.backward(half=1)
        self.door.averaged()
        self.used()

    def guard(self) -> None:
        self.zero()
        self.thrown_away(1e4)
        if self.drawn.random() < 0.5:  # or the zero_grad of the next action
            self.zero()

    def guard_tells(self) -> None:
        self.zero()
        self.thrown_away(1e4)
        if self.thrown and isinstance(self.door, Wrapped):
            self.door.optimizer.skip_step()
        elif self.thrown and not isinstance(self.door, Sharded):
            self.door.kept.step_end("forget")

    def probe(self) -> None:
        self.zero()
        for _ in range(self.drawn.randrange(1, 3)):
            self.thrown_away()
            self.zero()
        self.used()

    def overflow(self) -> None:
        self.zero()
        self.thrown_away(float("inf"))

    def scaler(self) -> None:
        """A loss scaler that finds an infinity and leaves out the step."""
        self.zero()
        if not self.thrown or isinstance(self.door, Sharded) or SCALER is None:
            return
        optimizers = getattr(self.door.optimizer, "both", [self.door.optimizer])
        scaler = SCALER("cpu", init_scale=1.0)
        x, y = make_batch(self.step, 4 * SIZE)
        scaler.scale(loss_of(self.door.forward, part(x), part(y)) * float("inf")).backward()
        for optimizer in optimizers:
            scaler.step(optimizer)
        scaler.update(1.0)

    def generator(self) -> None:
        """A backward that is made for a model before this model."""
        self.zero()
        z = torch.randn(4, 5, generator=torch.Generator().manual_seed(self.step))
        z.requires_grad_()
        if self.thrown:
            self.door.forward(z).square().sum().backward()
            self.door.averaged()
            assert z.grad is not None

    def clip(self) -> None:
        self.zero()
        self.backward()
        self.door.averaged()
        torch.nn.utils.clip_grad_norm_(self.door.model.parameters(), 0.01)
        self.door.step()

    def clip_a_zeroed_one(self) -> None:
        """A guard that sets gradients to zero and steps nevertheless."""
        self.zero()
        self.thrown_away()
        self.door.optimizer.zero_grad(set_to_none=True)
        self.door.step()

    def save(self) -> None:
        self.saved = self.door.save()
        self.states.append(self.door.state())
        self.plain()

    def save_between(self) -> None:
        self.zero()
        if self.thrown:
            self.backward()
            self.door.averaged()
        self.saved = self.door.save()
        self.states.append(self.door.state())
        if not self.thrown:
            self.backward()
            self.door.averaged()
        self.door.step()

    def load(self) -> None:
        if self.saved is not None:
            self.door.load(self.saved)
        self.plain()

    def load_between(self) -> None:
        self.zero()
        if self.saved is not None:
            self.thrown_away()
            self.door.load(self.saved)
        self.zero()


def one(model: torch.nn.Module) -> Any:
    return torch.optim.SGD(model.parameters(), lr=0.05)


class Pair:
    """An optimizer for weights and one for biases."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.both = [
            torch.optim.SGD([p for p in model.parameters() if p.dim() > 1], lr=0.05),
            torch.optim.Adam(
                [p for p in model.parameters() if p.dim() == 1], lr=0.01, betas=(0.0, 0.999)
            ),
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        for optimizer in self.both:
            optimizer.zero_grad(set_to_none=set_to_none)

    def step(self, closure: Any = None) -> None:
        if closure is not None:
            closure()
        for optimizer in self.both:
            optimizer.step()


def pair(model: torch.nn.Module) -> Any:
    return Pair(model)


def run(seed: int) -> None:
    drawn = random.Random(seed)
    make = drawn.choice(DOORS)
    if make is Sharded:
        scheme = scheme_of(drawn.choice(FLAT))
    elif drawn.random() < 0.3:
        scheme = drawn.choice(list(KEEPING.values()))
    else:
        scheme = scheme_of(drawn.choice(OF_CONF))
    two = make is not Wrapped and drawn.random() < 0.3
    actions = [drawn.choice(ACTIONS) for _ in range(10)]
    try:
        ends = [Loop(make, scheme, two, thrown, seed).run(actions) for thrown in (True, False)]
        for got, expected in zip(ends[0][1], ends[1][1]):
            same_state(got, expected)
        same(ends[0][0], ends[1][0])
    except BaseException:
        say(f"seed {seed}: {make.__name__}, two {two}, {actions}\n{scheme}")
        raise


def check_what_is_thrown_away_leaves_no_trace() -> None:
    first, count = int(sys.argv[1]), int(sys.argv[2])
    for seed in range(first, first + count):
        run(seed)


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
