"""The optimizer of each scheme, and the learning rate that `tools/bench tune` found for it.

Rates are in tuned.toml beside this file, by task and scheme. A scheme that was not tuned for a task gets a middle rate.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import toml_text

if TYPE_CHECKING:
    import torch

TUNED = Path(__file__).with_name("tuned.toml")

# The rates with which a search begins. Without a search the middle rate is used.
FIRST_RATES = {"adamw": (1e-3, 3e-3, 1e-2), "sgd": (3e-4, 1e-3, 3e-3)}


@dataclass(frozen=True)
class Optimizer:
    """A torch optimizer and its settings."""

    kind: str  # "adamw", with torch's second beta and weight decay, or "sgd"
    rate: float
    momentum: float  # first beta of AdamW, momentum of SGD

    def make(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        import torch

        if self.kind == "adamw":
            return torch.optim.AdamW(parameters, lr=self.rate, betas=(self.momentum, 0.999))
        return torch.optim.SGD(parameters, lr=self.rate, momentum=self.momentum)

    @property
    def words(self) -> str:
        """The optimizer in the words of tables."""
        if self.kind == "adamw":
            return f"AdamW {self.rate:g}" + ("" if self.momentum == 0.9 else f", beta1 {self.momentum:g}")
        return f"SGD {self.rate:g}, momentum {self.momentum:g}"


@functools.cache
def _tuned() -> toml_text.Table:
    return toml_text.load(TUNED) if TUNED.exists() else {}


def searched(task: str, scheme: str) -> dict[str, Any]:
    """The result of the search for the scheme's rate, or nothing."""
    return _tuned().get(task, {}).get(scheme, {})


def tuned(task: str, scheme: str, kind: str, momentum: float) -> Optimizer:
    """The scheme's optimizer at its best rate for `task`. A search with another optimizer does not count."""
    entry = searched(task, scheme)
    if (entry.get("optimizer"), entry.get("momentum")) != (kind, momentum):
        return Optimizer(kind, FIRST_RATES[kind][1], momentum)
    return Optimizer(kind, entry["rate"], momentum)
