"""Finds the gradients that no longer hold their results."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Callable

import torch

from penstock.torch import devices


class Gone:
    """The parameters, out of a list, whose gradients no longer hold their results. The answer can
    be read later.

    gone: the gradients known to be gone. doubtful: positions of results that were changed or
    replaced. is_zero: returns for each doubtful position whether the gradient is zero now.
    was_zero: returns for each position whether the result was zero on arrival; None if this was not
    read. group_of: the number of the optimizer of each position.

    A result that was zero on arrival shows nothing itself, so it counts like the other results of
    its optimizer.
    """

    def __init__(
        self,
        gone: list[bool],
        doubtful: list[int],
        is_zero: Callable[[], list[bool]],
        was_zero: Callable[[], list[bool]] | None,
        group_of: list[int],
    ) -> None:
        self.gone = gone
        self.doubtful = doubtful
        self.is_zero = is_zero
        self._was_zero = was_zero
        self._group_of = group_of

    def read(self) -> list[bool]:
        """Returns for each parameter whether its result is gone."""
        zero = dict(zip(self.doubtful, self.is_zero()))
        if not any(zero.values()):
            return self.gone
        was_zero = self._was_zero() if self._was_zero is not None else [False] * len(self.gone)
        telling = [place for place in self.doubtful if not was_zero[place]]
        kept = {self._group_of[place] for place in telling if not zero[place]}
        thrown = {self._group_of[place] for place in telling if zero[place]} - kept
        for place in self.doubtful:
            was_cleared = self._was_zero is not None and not was_zero[place]
            self.gone[place] = zero[place] and (was_cleared or self._group_of[place] in thrown)
        return self.gone


class Arrived:
    """The results of one step as they arrived in `p.grad` of the parameters."""

    def __init__(self) -> None:
        self._parameters: Sequence[torch.Tensor] = []
        # For each parameter the tensor that held its result when it arrived, and its version;
        # None: the result was not put into the gradient.
        self._held: list[tuple[weakref.ref[torch.Tensor], int] | None] = []
        self._reads_results = False  # notes which results are zero when they arrive
        self._came_zero: Callable[[], list[bool]] | None = None

    def follow(self, parameters: Sequence[torch.Tensor]) -> None:
        """Follows these parameters from now on."""
        self._parameters = parameters

    def clear(self) -> None:
        """Forgets the results, because there is no step."""
        self._held = []

    def note(self, elsewhere: Iterable[int], may_read: bool) -> None:
        """Notes the results, which are in the gradients now, except the results of parameters
        `elsewhere`. may_read: look for results that are zero, if zeros were seen in the place of
        results before."""
        gradients = [one.grad for one in self._parameters]
        self._held = [None if g is None else (weakref.ref(g), g._version) for g in gradients]
        for number in elsewhere:
            self._held[number] = None
        self._came_zero = None
        if self._reads_results and may_read:
            nothing = torch.zeros(0)
            self._came_zero = devices.zeros_later([nothing if g is None else g for g in gradients])

    def is_foreign(self, number: int) -> bool:
        """Whether the gradient is not the tensor that got the result."""
        held, gradient = self._held[number], self._parameters[number].grad
        return held is not None and gradient is not None and held[0]() is not gradient

    def gone(self, numbers: Sequence[int], group_of: Mapping[int, int]) -> Gone:
        """Looks at these parameters. group_of: the number of a parameter's optimizer."""
        gone, doubtful = [], {}
        for place, number in enumerate(numbers):
            held, gradient = self._held[number], self._parameters[number].grad
            is_gone = held is None or gradient is None
            gone.append(is_gone)
            if not is_gone and (held[0]() is not gradient or gradient._version != held[1]):
                doubtful[place] = gradient
        is_zero = self._zeros(list(doubtful.values()))
        came = self._came_zero
        was_zero = None if came is None else lambda: [came()[number] for number in numbers]
        groups = [group_of.get(number, -1) for number in numbers]
        return Gone(gone, list(doubtful), is_zero, was_zero, groups)

    def _zeros(self, gradients: list[torch.Tensor]) -> Callable[[], list[bool]]:
        found = devices.zeros_later(gradients)

        def read() -> list[bool]:
            zeros = found()
            # Zeros may be thrown away or may have arrived as zeros. From the next step on results
            # are read on arrival to distinguish both.
            self._reads_results = self._reads_results or any(zeros)
            return zeros

        return read
