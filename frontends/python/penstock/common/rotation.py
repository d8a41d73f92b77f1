"""The order of exchanges when ranks train apart: which fragment of the parameters starts its
exchange after which step, and when the result of that exchange is applied. No framework is needed.

Source: Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, section 2.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rotation:
    """Fragment f of F starts after the steps s with s mod H = (f + 1) H / F, rounded down, and
    lands D steps later. ValueError for numbers that give no such order.

    every: H, the steps of a round. fragments: F. delay: D; with 0 an exchange lands in the step in
    which it starts. Fewer than H / F steps, so one exchange at most is under way.
    """

    every: int
    fragments: int = 1
    delay: int = 0

    def __post_init__(self) -> None:
        _check("every", self.every, 1, "the number of the optimizer's steps in a round")
        _check("fragments", self.fragments, 1, "the number of parts that travel in turn")
        _check("delay", self.delay, 0, "the number of steps that hide an exchange")
        if self.fragments > self.every:
            raise ValueError(
                f"fragments is {self.fragments} and every is {self.every}, expected at most one "
                f"fragment for each step of a round: raise every to {self.fragments} or more, or "
                f"lower fragments to {self.every} or less"
            )
        gap = self.every // self.fragments
        if self.delay >= gap:
            raise ValueError(
                f"delay is {self.delay}, expected fewer than every / fragments = {self.every} / "
                f"{self.fragments} steps: an exchange must land before the next one starts; lower "
                f"delay to {gap - 1} or less, or raise every"
            )

    def place_of(self, fragment: int) -> int:
        """The step of a round, from 1 to `every`, after which the fragment starts."""
        return (fragment + 1) * self.every // self.fragments

    def starting(self, step: int) -> int | None:
        """The fragment that starts its exchange after step number `step` (from 1), or None."""
        if step < 1:
            return None
        place = (step - 1) % self.every + 1
        return next((f for f in range(self.fragments) if self.place_of(f) == place), None)

    def landing(self, step: int) -> int | None:
        """The fragment whose result is applied after step number `step`, or None."""
        return self.starting(step - self.delay)


def _check(name: str, value: Any, least: int, what: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise ValueError(f"{name} is {value!r}, expected a whole number from {least} on: {what}")
