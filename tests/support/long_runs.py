"""What a test of pytest runs: a few cases, or every case in `tools/nightly`, which sets TEST_LONG (as long.hpp says for
programs)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

Case = TypeVar("Case")
IS_LONG = bool(os.environ.get("TEST_LONG"))


def cases(every: Sequence[Case], few: Sequence[Case]) -> Sequence[Case]:
    """The cases of a test, mostly numbers of ranks: every case in long runs, otherwise the most useful cases."""
    return every if IS_LONG else few
