"""Gradients that a script takes out of `p.grad` after they arrived, and uses later: gradient
surgery, or buffers of its own. At first they look like results that were thrown away.

The pattern shows when an optimizer steps with a `p.grad` that no backward delivered, although
results of the same parameters were counted as thrown away since its last step. From then on results
of these parameters that are taken out count as applied. The script is the same on every rank, so
all ranks see the pattern in the same step; if they do not, the core notices that outcomes differ.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from penstock.torch import world


class TakenOut:
    """The results of one set's parameters, by the numbers of the parameters."""

    def __init__(self) -> None:
        self._thrown: dict[int, int] = {}  # results thrown away since the optimizer's last step
        self._known: set[int] = set()  # parameters whose results are taken out

    def clear(self) -> None:
        """Forgets all parameters, because their numbers change."""
        self._thrown.clear()
        self._known.clear()

    def among(self, gone: Sequence[int]) -> list[int]:
        """The parameters among `gone` whose results count as applied. The others were thrown
        away."""
        taken = [number for number in gone if number in self._known]
        for number in gone:
            if number not in self._known:
                self._thrown[number] = self._thrown.get(number, 0) + 1
        return taken

    def at_step(self, set_name: str, numbers: Sequence[int], foreign: Iterable[int]) -> None:
        """An optimizer of parameters `numbers` begins a step. foreign: those with a gradient that
        no backward delivered. Where this shows that results were taken out, a warning says what was
        lost before, and names the call that tells outcomes."""
        if not self._thrown:  # as in every plain loop, in which nobody looks at the gradients again
            return
        n_thrown = max((self._thrown.get(number, 0) for number in foreign), default=0)
        for number in numbers:
            self._thrown.pop(number, None)
        if n_thrown == 0:
            return
        self._known.update(numbers)
        backwards = "1 backward" if n_thrown == 1 else f"{n_thrown} backwards"
        print(
            f"penstock warning: rank {world.rank()}: {set_name}: an optimizer steps with gradients "
            f"that no backward has put into p.grad. Before it, the results of {backwards} were "
            "taken out of p.grad and counted as thrown away, so the scheme sends their part again. "
            "From now on results of these parameters that are taken out count as applied. For "
            'results that you throw away, call step_end("forget") after their backward, on every '
            "rank",
            file=sys.stderr,
            flush=True,
        )
