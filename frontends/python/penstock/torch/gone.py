"""Which gradients hold their results no more."""

from __future__ import annotations

from typing import Callable


class Gone:
    """Which of some parameters hold their results no more, for somebody who asks later.

    gone: what is known. is_zero: for `doubtful`, places of results that were changed or replaced,
    whether they are zero now. was_zero: whether all results were when they came, if that was looked
    at. group_of: the optimizer of each place, a number.

    A result that was zero when it came tells nothing: it went the way of its optimizer's others.
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
        """For each of the parameters."""
        zero = dict(zip(self.doubtful, self.is_zero()))
        if not any(zero.values()):
            return self.gone
        was_zero = self._was_zero() if self._was_zero is not None else [False] * len(self.gone)
        telling = [place for place in self.doubtful if not was_zero[place]]
        kept = {self._group_of[place] for place in telling if not zero[place]}
        thrown = {self._group_of[place] for place in telling if zero[place]} - kept
        for place in self.doubtful:
            told = self._was_zero is not None and not was_zero[place]
            self.gone[place] = zero[place] and (told or self._group_of[place] in thrown)
        return self.gone
