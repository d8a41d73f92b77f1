"""Finds the gradients that no longer hold their results."""

from __future__ import annotations

from typing import Callable


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
