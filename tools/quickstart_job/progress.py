"""The progress that the job shows while it trains."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import Any

LONGEST_SILENCE_S = 10.0


class Progress:
    """Live state of one scheme's training on rank 0: a bar on a terminal, now and then a line elsewhere."""

    def __init__(
        self, label: str, steps: int, unit: str, style: str, seconds_left: Callable[[], float] | None = None
    ) -> None:
        """`seconds_left` returns the seconds of all remaining work; it is called at each output."""
        self.label, self.steps, self.unit, self.seconds_left = label, steps, unit, seconds_left
        self.bar: Any = None
        if style == "bar" or (style == "auto" and sys.stderr.isatty()):
            from tqdm import tqdm

            self.bar = tqdm(total=steps, desc=f"{label:<18}", dynamic_ncols=True, unit="step")
        self.shown_every = max(1, steps // 5)
        self.shown_at = time.monotonic()
        self.silent = style == "none"

    def update(self, step: int, loss: float, bytes_per_step: float | None = None, step_ms: float | None = None) -> None:
        """`bytes_per_step` so far, `loss` of this rank in nats; a simulation has no bytes and no times."""
        if self.silent and self.bar is None:
            return
        figures = [f"loss {loss:.3f}", f"{loss / math.log(2.0):.3f} {self.unit}"]
        if bytes_per_step is not None:
            figures.append(f"{size(bytes_per_step)}/step")
        if step_ms is not None:
            figures.append(f"{step_ms:.0f} ms")
        if self.seconds_left is not None:
            figures.append(f"{duration(self.seconds_left())} left")
        if self.bar is not None:
            self.bar.set_postfix_str(", ".join(figures), refresh=False)
            self.bar.update(1)
        elif (step + 1) % self.shown_every == 0 or step + 1 == self.steps or time.monotonic() > self.shown_at + LONGEST_SILENCE_S:
            self.shown_at = time.monotonic()
            print(f"{self.label:<18} step {step + 1:>5}/{self.steps}  {'  '.join(figures)}", flush=True)

    def extend(self, steps: int) -> None:
        """Training goes on, at most up to `steps`."""
        self.steps = steps
        if self.bar is not None:
            self.bar.total = steps

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()


class TimeLeft:
    """An estimate for all schemes together: the remaining steps of all schemes at the pace of the running scheme."""

    def __init__(self, schemes: int, steps: int) -> None:
        self._schemes, self._steps = schemes, steps  # schemes that have not begun; steps of each scheme
        self._left = 0  # remaining steps of the running scheme
        self._pace_ms = 0.0

    def begin(self) -> None:
        """The next scheme's turn."""
        self._schemes -= 1
        self._left = self._steps
        self._pace_ms = 0.0

    def step(self, ms: float) -> None:
        self._left = max(0, self._left - 1)
        self._pace_ms = ms if self._pace_ms == 0.0 else 0.9 * self._pace_ms + 0.1 * ms

    def seconds(self) -> float:
        return 1e-3 * (self._left + self._schemes * self._steps) * self._pace_ms


def size(count: float) -> str:
    """Bytes for people: 1.69 MB (powers of 1000)."""
    for unit in ("B", "kB", "MB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.3g} {unit}"
        count /= 1000.0
    return f"{count:.3g} GB"


def duration(seconds: float) -> str:
    """Time for people: 12 s, 3 min 20 s."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
