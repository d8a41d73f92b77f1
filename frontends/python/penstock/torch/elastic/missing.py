"""The error of the names of elastic training."""

from __future__ import annotations

from typing import NoReturn


def not_yet(name: str, instead: str) -> NoReturn:
    """Raises NotImplementedError; the message names the alternative."""
    raise NotImplementedError(
        f"elastic.{name} is not there yet, it follows in a later version; {instead}"
    )
