"""tools/bench step: see race.py."""

from .race import main

__all__ = ["main"]
