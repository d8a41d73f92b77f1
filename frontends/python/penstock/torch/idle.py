"""A replacement for the core's set on a rank outside the optimizer's process set. It exchanges
nothing, and the optimizer acts like the user's optimizer there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock._library import COUNTER_NAMES, DEFERS_NOTHING, PHASE_IDLE


class IdleSet:
    """The calls of a GradientSet without gradients. Each call does nothing."""

    name = "optimizer of a process set that this rank is not in"
    alive = False
    is_staged = False
    n_gradients = 0
    phase = PHASE_IDLE
    has_come = False

    def defers(self) -> int:
        return DEFERS_NOTHING

    def set_momentum(self) -> None:
        pass

    def set_learning_rates(self, rates: Sequence[float]) -> None:
        pass

    def set_grad_scale(self, scale: float) -> None:
        pass

    def set_passes(self, passes: int, n_beside: int = 0) -> None:
        pass

    def rest(self) -> list[int]:
        return []

    def step_restart(self) -> None:
        pass

    def wait_all(self) -> None:
        pass

    def comparison_due(self) -> bool:
        return False

    def step_end(self, outcome: int) -> None:
        pass

    def reset(self) -> None:
        pass

    def let_go(self) -> None:
        pass

    def save(self) -> bytes:
        return b""

    def load(self, data: bytes) -> None:
        if data:
            raise ValueError(
                "the state of compression belongs to another rank: this one is not in the process "
                "set"
            )

    def load_shards(self, shards: Sequence[bytes]) -> str:
        del shards
        return ""

    def report(self) -> dict[str, Any]:
        return {"name": self.name}

    def counters(self) -> dict[str, int]:
        return {name: 0 for name in COUNTER_NAMES}
