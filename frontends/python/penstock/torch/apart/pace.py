"""How long exchanges take, counted in steps of the optimizer: the delay that hides them."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque

from penstock.common.rotation import Rotation

_STEPS = 64  # of which the median counts
_EXCHANGES = 8  # of which the longest counts


class Pace:
    """Measures steps and waits of one rank. Calls come from the thread that trains."""

    def __init__(self, rotation: Rotation) -> None:
        self._delay = rotation.delay
        self._plans = rotation.fragments  # exchanges to come that also plan, so they do not count
        self._steps: deque[float] = deque(maxlen=_STEPS)  # seconds, without exchanges
        self._waits: deque[float] = deque(maxlen=_EXCHANGES)  # seconds
        self._began: float | None = None  # the present step

    def step_begins(self) -> None:
        """Call it after the work on exchanges that follows a step."""
        self._began = time.perf_counter()

    def step_ends(self) -> None:
        """Call it right after a step, before the work on exchanges."""
        if self._began is not None:
            self._steps.append(time.perf_counter() - self._began)

    def waited(self, seconds: float) -> None:
        """Notes the wait for the result of one exchange."""
        if self._plans > 0:
            self._plans -= 1
        else:
            self._waits.append(seconds)

    def report(self) -> dict[str, float | int]:
        """step_s: the median of the last steps, in seconds and without exchanges. wait_s: the
        longest of the last waits. delay_that_hides: the steps that this exchange took, and one more
        because exchanges and steps share the processors. Empty before the second round."""
        if not self._waits or not self._steps:
            return {}
        step_s, wait_s = statistics.median(self._steps), max(self._waits)
        hides = self._delay
        if wait_s > 0.1 * step_s:
            hides += math.ceil(wait_s / step_s) + (1 if self._delay == 0 else 0)
        return {"step_s": step_s, "wait_s": wait_s, "delay_that_hides": hides}
