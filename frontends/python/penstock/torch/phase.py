"""Where a step of an optimizer stands, and what its exchange asks of deferred updates."""

from __future__ import annotations

import enum
from typing import Protocol

from penstock.torch.gradients import Slot


class Phase(enum.Enum):
    """Where the core's step stands."""

    IDLE = "idle"  # no step is open
    OPEN = "open"  # gradients may be handed in
    SYNCHRONIZED = "synchronized"  # all results have arrived; the core waits for the outcome
    DEFERRED = "deferred"  # the update is promised; results arrive until the next forward ends


class Deferral(Protocol):
    """What the exchange asks of DeferredUpdates."""

    outstanding: dict[int, Slot]

    def settle(self) -> None:
        """Before the first gradient of a step: the results of the one before arrive, and it
        ends."""

    def flush(self) -> None:
        """Applies every outstanding update."""

    def check_unused(self, slot: Slot) -> None:
        """Raises when `slot` has an outstanding update."""

    def slots_changed(self) -> None:
        """The exchange has other slots for the same parameters."""
