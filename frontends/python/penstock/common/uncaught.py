"""Messages for a script that ends in an exception: the rank that raised it prints it in full, and
the other ranks, which end because of it, print one line."""

from __future__ import annotations

import os
import re
import sys
import time
from types import TracebackType

from penstock.common.exceptions import HorovodInternalError

_ENDED_ELSEWHERE = re.compile(r"\brank (\d+) ended with ")
# Other ranks stay this long, because a launcher blames the rank that ends first. The time is
# shorter than the grace of `penstock run`.
_STAY_S = 1.0


def reason(rank: int, uncaught: BaseException) -> str:
    """The reason that the other ranks receive when a rank's script has ended in this exception."""
    words = str(uncaught)
    return f"rank {rank} ended with {type(uncaught).__name__}{': ' if words else ''}{words}"


def install_hook(rank: int) -> None:
    """Installs the hook for uncaught exceptions until the process ends, because an exception may
    come after the runtime's end. A second call does nothing.

    rank: the rank of this process."""
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(rank)


class _Hook:
    """Prints one line for an error that another rank's end has caused. It omits the traceback of
    this rank, which would hide the important one; ``PENSTOCK_LOG_LEVEL=debug`` shows it. All other
    errors go to the hook that was installed before."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._before = sys.excepthook

    def __call__(
        self,
        kind: type[BaseException],
        error: BaseException,
        traceback: TracebackType | None,
    ) -> None:
        elsewhere = _ENDED_ELSEWHERE.search(str(error))
        # If a DDP hook raises it, torch makes a RuntimeError that contains its name and message.
        is_ours = isinstance(error, HorovodInternalError) or (
            isinstance(error, RuntimeError) and HorovodInternalError.__name__ in str(error)
        )
        is_echo = is_ours and elsewhere is not None and int(elsewhere[1]) != self._rank
        if is_echo and os.environ.get("PENSTOCK_LOG_LEVEL") != "debug":
            first = str(error)[elsewhere.start() :].splitlines()[0]
            print(
                f"rank {self._rank} ends: {HorovodInternalError.__name__}: {first}",
                file=sys.stderr,
                flush=True,
            )
        else:
            self._before(kind, error, traceback)
        if is_echo:
            time.sleep(_STAY_S)
