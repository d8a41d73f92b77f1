"""Gradients that a script copies and takes out of `p.grad` after they arrived, to put a sum of its own
there: through every frontend it counts as if the script told each outcome, from the second step on."""

from __future__ import annotations

import io
from contextlib import redirect_stderr
from typing import Any

import torch
from ddp_support import join_torch
from outcome_support import DENSE, DOORS, Sharded, TOPK, Wrapped, backward, few_schemes, plain, same, same_state
from support import expect, run_checks

import penstock.torch as hvd

SAID = "an optimizer steps with gradients that no backward has put into p.grad"


def tell(door: Any, outcome: str) -> None:
    if isinstance(door, Sharded):
        for reducer in door.reducers.values():
            reducer.step_end(outcome)
    else:
        (door.optimizer if isinstance(door, Wrapped) else door.kept).step_end(outcome)


def take_out(door: Any) -> list[torch.Tensor]:
    """Copies the gradients of a backward and empties p.grad."""
    door.averaged()
    copies = [one.grad.clone() for one in door.model.parameters()]
    for one in door.model.parameters():
        one.grad = None
    return copies


def surgery(door: Any, step: int, n_backwards: int = 2, told: tuple[str, ...] = ()) -> None:
    """A step with the mean of several backwards. told: the outcome of each backward but the last, if
    the script tells it."""
    kept = []
    for number in range(n_backwards):
        backward(door, 10 * step + number)
        kept.append(take_out(door))
        if number < len(told):
            tell(door, told[number])
    for one, *copies in zip(door.model.parameters(), *kept):
        one.grad = sum(copies) / n_backwards
    door.step()
    door.optimizer.zero_grad()


def check_from_the_second_step_on_it_counts_as_if_the_script_told_each_outcome() -> None:
    for make in DOORS:
        for name, scheme in few_schemes(make).items():
            ends, states = [], []
            for is_told in (False, True):
                door = make(scheme)
                heard = io.StringIO()
                with redirect_stderr(heard):
                    surgery(door, 0, told=("forget",) if is_told else ())
                    for step in range(1, 4):
                        surgery(door, step, told=("applied",) if is_told else ())
                expected = 0 if is_told else len(getattr(door, "reducers", "1"))
                assert heard.getvalue().count(SAID) == expected, (make, name, heard.getvalue())
                assert is_told or "the results of 1 backward were" in heard.getvalue()
                ends.append(door.parameters())
                states.append(door.state())
                door.close()
            same(*ends)
            same_state(*states)


def check_dense_training_is_that_of_the_mean_of_all_backwards() -> None:
    for make in DOORS:
        door, expected = make(DENSE), make(DENSE)
        with redirect_stderr(io.StringIO()):
            for step in range(3):
                surgery(door, step, n_backwards=3)
        for step in range(3):
            for number in range(3):
                backward(expected, 10 * step + number, 1 / 3)
                taken = take_out(expected)
                kept = taken if number == 0 else [a + b for a, b in zip(kept, taken)]  # noqa: F821
                tell(expected, "applied")
            for one, gradient in zip(expected.model.parameters(), kept):
                one.grad = gradient
            expected.step()
            expected.optimizer.zero_grad()
        for got, wanted in zip(door.parameters(), expected.parameters()):
            torch.testing.assert_close(got, wanted)
        door.close()
        expected.close()


def check_what_is_thrown_away_before_a_step_of_its_own_is_still_forgotten() -> None:
    """A first backward whose results only move the weights, as with SAM, and gradients that are
    clipped in place."""
    for make in DOORS:
        ends = []
        for throws_away in (False, True):
            door = make(TOPK)
            heard = io.StringIO()
            with redirect_stderr(heard):
                plain(door, range(2))
                for step in range(2, 5):
                    door.optimizer.zero_grad()
                    if throws_away:
                        backward(door, 50 + step)
                        take_out(door)
                    backward(door, step)
                    door.averaged()
                    torch.nn.utils.clip_grad_norm_(door.model.parameters(), 0.5)
                    door.step()
            assert SAID not in heard.getvalue(), make
            ends.append(door.parameters())
            door.close()
        same(*ends)


def check_another_word_for_an_outcome_is_refused() -> None:
    for make in DOORS:
        door = make(TOPK)
        plain(door, range(1))
        with expect(ValueError, "'used', expected \"applied\" or \"forget\""):
            tell(door, "used")
        door.close()


if __name__ == "__main__":
    hvd.init()
    join_torch()
    run_checks(globals())
