"""An optimizer that acts for the user's optimizer: its class derives from the user's class and adds
methods, and both share options and state."""

from __future__ import annotations

from typing import Any

import torch


def adopt(optimizer: torch.optim.Optimizer, methods: type, base: type) -> Any:
    """Returns an instance of a new class with the name of `base`, which derives from `methods` and
    `base`, in that order. So ``super()`` in `methods` is the user's optimizer. Options, state and
    torch's own bookkeeping are shared with `optimizer`, which must not be used any more."""
    made: Any = type(
        base.__name__,
        (methods, base),
        {"__doc__": base.__doc__, "__module__": base.__module__},
    )
    adopted = made.__new__(made)
    # A learning-rate scheduler may have set a `step` on the original, which would hide the `step`
    # of the new class.
    adopted.__dict__.update(
        {key: value for key, value in optimizer.__dict__.items() if key != "step"}
    )
    # Such a scheduler counts steps of the original, which will take none, and would warn. It reads
    # the first name; before torch 2.4 it reads the second.
    optimizer._opt_called = True  # type: ignore[attr-defined]
    optimizer._step_count = 1  # type: ignore[attr-defined]
    return adopted
