"""Outstanding updates (promised, but not applied yet), for modules other than `deferred`."""

from __future__ import annotations

import weakref
from typing import Protocol

from penstock.torch.gradients import Slot


class Deferral(Protocol):
    """The interface of DeferredUpdates and LateMeans for other modules."""

    outstanding: dict[int, Slot]

    def settle(self) -> None:
        """Waits for the results of the last step, which then ends. Called before the first gradient
        of a step."""

    def flush(self) -> None:
        """Applies every outstanding update."""

    def check_unused(self, slot: Slot) -> None:
        """Raises RuntimeError if `slot` has an outstanding update."""

    def slots_changed(self) -> None:
        """Replaces the slots after the exchange has made new ones for its parameters."""


live: weakref.WeakSet[Deferral] = weakref.WeakSet()  # of this process


def flush_all() -> None:
    """Applies every outstanding update of every optimizer of this process."""
    for updates in list(live):
        updates.flush()
