"""PenstockStates that no backward has used by the end of the program: mostly a hook that was not
registered. Rank 0 says so once."""

from __future__ import annotations

import atexit
import itertools
import os
import sys

from penstock.common import first_line

_waiting: dict[int, str] = {}  # what they were made with
_numbers = itertools.count()
_owner_pid = os.getpid()


def await_use(scheme: str) -> int:
    """A state was made; the number is for `used`."""
    number = next(_numbers)
    _waiting[number] = scheme if scheme and "\n" not in scheme else "..."
    return number


def used(number: int) -> None:
    """It has seen a backward, or none is expected of it."""
    _waiting.pop(number, None)


@atexit.register
def _at_exit() -> None:
    # A forked child inherits the list, and a script that failed has other worries.
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
