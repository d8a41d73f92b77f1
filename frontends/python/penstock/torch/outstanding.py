"""Updates that are promised and not applied yet, as everybody sees them who is not `deferred`."""

from __future__ import annotations

import weakref
from typing import Protocol

from penstock.torch.gradients import Slot


class Deferral(Protocol):
    """What others ask of DeferredUpdates."""

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


live: weakref.WeakSet[Deferral] = weakref.WeakSet()  # of this process


def flush_all() -> None:
    """Applies every outstanding update of every optimizer of this process."""
    for updates in list(live):
        updates.flush()
