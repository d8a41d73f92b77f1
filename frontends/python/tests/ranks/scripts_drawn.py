"""Random scripts around LocalSteps and around means that are applied one step late. Each script runs
twice: as it is, and plainly, without what must leave no trace (copies of gradients, backwards that
are thrown away, saves, going back to a save, an optimizer made anew from a save). Parameters and
states agree to the bit. At the end one rank makes a mistake, and every rank gets an error.

    scripts_drawn.py FIRST COUNT      the seeds
"""

from __future__ import annotations

import copy
import dataclasses
import random
import sys
import threading
from typing import Any

import torch
from local_steps_support import AVERAGE, inner_of, make_model
from support import loss_of, make_batch, say

import penstock.torch as hvd

RANK_SEED = 1000
SCHEMES: tuple[dict[str, Any], ...] = (
    {"compressor": "none", "memory": "none"},
    {"compressor": "topk", "memory": "residual", "options": {"compressor.topk": {"density": 0.25}}},
    {"compressor": "qsgd", "memory": "none"},
)
OUTERS = (AVERAGE, hvd.OuterStep(), hvd.OuterStep(lr=0.9, momentum=0.5, nesterov=False), None)
ACTIONS = (
    "plain", "plain", "copies", "accumulates", "probes", "zeroes_in_place", "clips", "skips",
    "saves", "saves_in_a_thread", "goes_back", "is_made_anew", "freezes", "changes_the_rate",
)  # fmt: skip
MISTAKES = {
    "apart": ("one_step_more", "another_outer_rate", "a_layer_frozen"),
    "late": ("a_mean_thrown_away",),
}


class Script:
    """plainly: leave out what must leave no trace."""

    def __init__(self, seed: int, plainly: bool) -> None:
        drawn = random.Random(seed)
        self.plainly = plainly
        self.kind = drawn.choice(("apart", "apart", "late"))
        self.inner_name = drawn.choice(("sgd", "adamw"))
        self.scheme = drawn.choice(SCHEMES)
        every = drawn.choice((1, 3, 4))
        fragments = drawn.choice((1, 2)) if every == 4 else 1
        delay = drawn.randrange(every // fragments)
        self.way = {
            "every": every, "fragments": fragments, "delay": delay, "outer": drawn.choice(OUTERS),
            "mix": drawn.choice((0.0, 0.5)) if delay else 0.0,
        }  # fmt: skip
        self.actions = [drawn.choice(ACTIONS) for _ in range(14)]
        self.numbers = random.Random(seed + 1)  # equal for both runs
        self.model: Any = make_model()
        self.optimizer = self.made()
        self.at = 0  # the number of the batch
        self.threads: list[tuple[threading.Thread, list[Any], Any]] = []

    def made(self) -> Any:
        inner, named = inner_of(self.model, self.inner_name), self.model.named_parameters()
        if self.kind == "apart":
            scheme = hvd.Scheme(**self.scheme)
            return hvd.LocalSteps(inner, scheme=scheme, named_parameters=named, **self.way)
        late = hvd.Scheme(**self.scheme, apply="previous")
        return hvd.DistributedOptimizer(inner, named_parameters=named, scheme=late)

    def run(self) -> tuple[list[torch.Tensor], dict[str, Any]]:
        for action in ("plain", "plain", *self.actions, "plain", "plain", "plain"):
            getattr(self, action)(self.numbers.randrange(1, 4))
        for thread, found, wanted in self.threads:
            thread.join()
            same(found[0], wanted)
        return [one.detach().clone() for one in self.model.parameters()], self.state()

    def close(self) -> None:
        hvd.barrier()
        self.optimizer.close()

    # ---- parts ----

    def backward(self, number: int | None = None) -> None:
        number = self.at if number is None else number
        loss_of(self.model, *make_batch(RANK_SEED * hvd.rank() + number, 6)).backward()

    def averaged(self) -> None:
        """One step late a script may change the mean between synchronize() and step()."""
        if self.kind == "late":
            self.optimizer.synchronize()

    def step(self) -> None:
        self.optimizer.step()
        self.at += 1

    def state(self) -> dict[str, Any]:
        return {**self.optimizer.state_dict(), **hvd.state_dict(self.optimizer)}

    def saved(self) -> Any:
        return copy.deepcopy((self.model.state_dict(), self.state(), self.at))

    def load(self, saved: Any) -> None:
        model, state, self.at = copy.deepcopy(saved)
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(state)

    # ---- what a script may do ----

    def plain(self, _: int) -> None:
        self.optimizer.zero_grad()
        self.backward()
        self.step()

    def copies(self, _: int) -> None:
        self.optimizer.zero_grad()
        self.backward()
        self.averaged()
        if not self.plainly:
            for one in self.model.parameters():
                taken, one.grad = one.grad, None
                one.grad = None if taken is None else taken.clone()
        self.step()

    def accumulates(self, _: int) -> None:
        self.optimizer.zero_grad()
        if self.kind == "apart":
            self.backward(50 + self.at)
        self.backward()
        self.step()

    def probes(self, n: int) -> None:
        if self.kind == "apart" and not self.plainly:
            self.optimizer.zero_grad()
            for number in range(n):
                self.backward(80 + number)
        self.plain(n)

    def zeroes_in_place(self, _: int) -> None:
        if self.kind == "apart":
            self.optimizer.zero_grad(set_to_none=False)
            self.backward()
            self.step()
        else:
            self.plain(0)

    def clips(self, _: int) -> None:
        self.optimizer.zero_grad()
        self.backward()
        self.averaged()
        gradients = [one for one in self.model.parameters() if one.grad is not None]
        if gradients:
            torch.nn.utils.clip_grad_norm_(gradients, 0.5)
        self.step()

    def skips(self, _: int) -> None:
        """All ranks leave a batch out."""
        if self.kind == "apart":
            self.optimizer.zero_grad()
            self.backward()
            self.optimizer.zero_grad()
        self.at += 1

    def saves(self, _: int) -> None:
        if not self.plainly:
            self.saved()
        self.plain(0)

    def saves_in_a_thread(self, _: int) -> None:
        """A thread copies Penstock's state while training goes on; torch's own is no copy."""
        if not self.plainly:
            state, found = dict(hvd.state_dict(self.optimizer)), []
            thread = threading.Thread(target=lambda: found.append(copy.deepcopy(state)))
            self.threads.append((thread, found, copy.deepcopy(state)))
            self.plain(0)
            thread.start()
        else:
            self.plain(0)

    def goes_back(self, n: int) -> None:
        if not self.plainly:
            saved = self.saved()
            for _ in range(n):
                self.plain(0)
            self.load(saved)
        self.plain(0)

    def is_made_anew(self, _: int) -> None:
        if not self.plainly:
            saved = self.saved()
            self.close()  # of late means: takes a further step, on the model that is left behind
            self.model = make_model()
            self.optimizer = self.made()
            self.load(saved)
        self.plain(0)

    def freezes(self, _: int) -> None:
        """A layer, for one step; late means are of parameters that require gradients always."""
        if self.kind == "late":
            return self.plain(0)
        layer = self.model[2]
        layer.requires_grad_(False)
        self.plain(0)
        layer.requires_grad_(True)
        return None

    def changes_the_rate(self, n: int) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] *= 1 - 0.1 * n
        self.plain(0)

    # ---- what one rank alone must not do ----

    def mistake(self, seed: int) -> str:
        """One that this script can make."""
        chosen = MISTAKES[self.kind][seed % len(MISTAKES[self.kind])]
        has_no_outer_step = chosen == "another_outer_rate" and self.way["outer"] is None
        # With an exchange in every step, the number of exchanges is the number of steps; with two
        # fragments one rank exchanges one of them, and the other rank the other.
        lies_at_an_exchange = self.way["every"] == 1 or self.way["fragments"] == 2
        is_a_round_more = chosen == "one_step_more" and lies_at_an_exchange
        return "a_layer_frozen" if has_no_outer_step or is_a_round_more else chosen

    def one_step_more(self, is_it: bool) -> None:
        """Seen where all ranks exchange: otherwise the next exchange pairs equal numbers."""
        if is_it:
            self.plain(0)
        self.optimizer.synchronize()

    def another_outer_rate(self, is_it: bool) -> None:
        if is_it:
            self.optimizer.outer = dataclasses.replace(self.optimizer.outer, lr=0.25)

    def a_layer_frozen(self, is_it: bool) -> None:
        if is_it:
            self.model[4].requires_grad_(False)

    def a_mean_thrown_away(self, is_it: bool) -> None:
        self.optimizer.zero_grad()
        self.backward()
        self.optimizer.synchronize()
        if is_it:
            self.optimizer.zero_grad()
            self.at += 1
        else:
            self.step()

    def ends_in_an_error(self, mistake: str) -> bool:
        """One rank makes the mistake. True if this rank gets an error."""
        try:
            getattr(self, mistake)(hvd.rank() == hvd.size() - 1)
            for _ in range(20):
                self.plain(0)
        except hvd.HorovodInternalError:
            return True
        return False


def same(one: Any, other: Any) -> None:
    if isinstance(one, torch.Tensor):
        assert torch.equal(one, other), f"{one} instead of {other}"
    elif isinstance(one, dict):
        assert one.keys() == other.keys(), f"{one.keys() ^ other.keys()}"
        for key in one:
            same(one[key], other[key])
    elif isinstance(one, (list, tuple)):
        assert len(one) == len(other)
        for mine, theirs in zip(one, other):
            same(mine, theirs)
    else:
        assert one == other, f"{one} instead of {other}"


def without_bytes(state: dict[str, Any]) -> dict[str, Any]:
    """Saved bytes have the name of their set, which differs from optimizer to optimizer."""
    return {
        key: value
        for key, value in state.items()
        if not (isinstance(value, torch.Tensor) and value.dtype == torch.uint8)
    }


if __name__ == "__main__":
    first, count = (int(text) for text in sys.argv[1:3])
    torch.set_num_threads(1)
    hvd.init()
    for seed in range(first, first + count):
        scripts = [Script(seed, plainly) for plainly in (False, True)]
        try:
            ends = [script.run() for script in scripts]
            same(ends[0][0], ends[1][0])
            same(without_bytes(ends[0][1]), without_bytes(ends[1][1]))
        except BaseException:
            script = scripts[0]
            say(f"seed {seed}: {script.kind}, {script.way}, {script.scheme}, {script.actions}")
            raise
        scripts[0].close()
        # With a delay an exchange may be under way on some ranks only, and would keep close() waiting.
        is_late = scripts[1].kind == "late"
        if hvd.size() > 1 and (is_late or scripts[1].way["delay"] == 0):
            mistake = scripts[1].mistake(seed)
            told = scripts[1].ends_in_an_error(mistake)
            all_told = bool(hvd.allreduce(torch.tensor([int(told)]), op=hvd.Min))
            assert all_told, f"seed {seed}: {mistake}, {scripts[1].way}: rank {hvd.rank()} {told}"
        scripts[1].close()
    say(f"all checks passed: {count} scripts")
    hvd.shutdown()
