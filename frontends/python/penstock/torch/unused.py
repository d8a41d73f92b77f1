"""Warns at the end of the program about PenstockStates that no backward has used, mostly because
the hook was not registered. Rank 0 prints one warning."""

from __future__ import annotations

import atexit
import itertools
import os
import sys

from penstock.common import first_line

_waiting: dict[int, str] = {}  # the schemes of unused states, by number
_numbers = itertools.count()
_owner_pid = os.getpid()


def await_use(scheme: str) -> int:
    """Notes that a state was made. Returns its number for `used`."""
    number = next(_numbers)
    _waiting[number] = scheme if scheme and "\n" not in scheme else "..."
    return number


def used(number: int) -> None:
    """Notes that the state has seen a backward, or that no backward is expected."""
    _waiting.pop(number, None)


@atexit.register
def _at_exit() -> None:
    # Print nothing in a forked child, which inherits the list, and after an uncaught exception.
    if not _waiting or os.getpid() != _owner_pid or getattr(sys, "last_value", None) is not None:
        return
    if any(os.environ.get(name, "0") != "0" for name in ("RANK", "OMPI_COMM_WORLD_RANK")):
        return
    states = ", ".join(f"PenstockState({scheme})" for scheme in sorted(set(_waiting.values())))
    first_line.say(
        f"warning: no backward has used {states}: gradients went without it; call "
        "model.register_comm_hook(state, hvd.ddp_hook) before the first backward. Lightning "
        "registers hooks on GPUs only, docs/ddp.md has a callback for the CPU"
    )
