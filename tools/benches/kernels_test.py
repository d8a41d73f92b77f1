"""The bench of kernels hands arrays to C by their addresses."""

from __future__ import annotations

import sys
import weakref
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benches.kernels.rows import aligned, pointer  # noqa: E402


def test_an_address_keeps_its_array_alive() -> None:
    array = aligned(100)
    alive = weakref.ref(array)
    address = pointer(array)
    assert address.value is not None and address.value % 64 == 0
    del array
    assert alive() is not None
    del address
    assert alive() is None
