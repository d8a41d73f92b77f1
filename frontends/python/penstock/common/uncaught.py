"""A script that ends in an exception: one rank's own is printed whole, and the others, which end
because of it, say so in one line."""

from __future__ import annotations

import os
import re
import sys
import time
from types import TracebackType

from penstock.common.exceptions import HorovodInternalError

_ENDED_ELSEWHERE = re.compile(r"\brank (\d+) ended with ")
# A launcher blames who ends first: so long the others stay. Less than the grace of `penstock run`.
_STAY_S = 1.0


def reason(rank: int, uncaught: BaseException) -> str:
    """What the other ranks hear of a rank whose script has ended in this exception."""
    words = str(uncaught)
    return f"rank {rank} ended with {type(uncaught).__name__}{': ' if words else ''}{words}"


def install_hook(rank: int) -> None:
    """From now to the end of the process, for an exception may come after the runtime's end. Does
    nothing the second time.

    rank: of this process."""
    if not isinstance(sys.excepthook, _Hook):
        sys.excepthook = _Hook(rank)


class _Hook:
    """Prints in one line what another rank's end has brought here, with no traceback of where this
    rank stood then, which would hide the one that counts; ``PENSTOCK_LOG_LEVEL=debug`` brings it
    back. All else goes to the hook that was there before."""

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
        # Out of a hook of DDP torch makes it a RuntimeError with its name and words, and more.
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
