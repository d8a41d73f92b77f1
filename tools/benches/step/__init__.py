"""tools/bench step: race.py has it all."""

from __future__ import annotations

from collections.abc import Sequence


def main(arguments: Sequence[str]) -> int:
    """What tools/bench calls. The ranks import this package too, and need nothing of race.py."""
    from benches.step import race

    return race.main(arguments)
