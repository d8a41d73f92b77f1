"""What the names of elastic training say."""

from __future__ import annotations

from typing import NoReturn


def not_yet(name: str, instead: str) -> NoReturn:
    """NotImplementedError with what to use instead."""
    raise NotImplementedError(
        f"elastic.{name} is not there yet, it follows in a later version; {instead}"
    )
