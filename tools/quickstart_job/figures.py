"""The run of one scheme as rank 0 reports it, and figures from it: times, ratios, and the step at which a loss was reached."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

TARGET_SHARE = 0.8  # the target loss is the loss of dense after this share of its steps
WINDOW_SHARE = 0.05  # of the steps: a loss is the mean over so many batches, because the loss of a single batch varies much


@dataclass
class Result:
    """The run of one scheme. Bytes are the bytes of rank 0 in one step."""

    name: str
    label: str
    optimizer: str
    dense: bool  # gradients travelled uncompressed
    steps: int  # after which `bits` and `accuracy` were taken; training may have gone on
    bits: float  # validation loss in bits per target
    accuracy: float
    payload_bytes_per_step: float  # handed to the transport
    moved_bytes_per_step: float  # sent to other ranks, counted each time they left
    dense_moved_bytes_per_step: float  # bytes that all-reduces of the gradients would have sent
    gradient_bytes_per_step: float  # uncompressed
    step_ms: list[float] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)  # mean over ranks, nats
    replicas_equal: bool = True  # all ranks ended with equal bits
    round_steps: int = 1  # steps between two exchanges

    @property
    def median_step_ms(self) -> float:
        """Of the rounds' mean steps, because the last step of a round has the exchange."""
        rounds = [self.step_ms[first : first + self.round_steps] for first in range(0, len(self.step_ms), self.round_steps)]
        return statistics.median(map(statistics.mean, rounds)) if rounds else 0.0

    @property
    def reduction(self) -> float | None:
        """How much less is moved than dense gradients would."""
        return self.dense_moved_bytes_per_step / self.moved_bytes_per_step if self.moved_bytes_per_step else None

    def seconds_after(self, steps: int) -> float:
        return 1e-3 * sum(self.step_ms[:steps])


def window(steps: int) -> int:
    return max(1, round(steps * WINDOW_SHARE))


def smoothed(values: Sequence[float], count: int) -> list[float]:
    """Mean of the last `count` values at each point; of those there are, before that."""
    result, total = [], 0.0
    for end, value in enumerate(values):
        total += value - (values[end - count] if end >= count else 0.0)
        result.append(total / min(end + 1, count))
    return result


def steps_until(losses: Sequence[float], target: float, count: int) -> int | None:
    """Steps after which the mean of the last `count` losses was first at most `target`; none if it never was."""
    for end, loss in enumerate(smoothed(losses, count)):
        if end + 1 >= count and loss <= target * (1 + 1e-12):  # sums of equal losses may differ in the last bit
            return end + 1
    return None


def target_of(dense: Result) -> float:
    """The loss in nats that is waited for."""
    after = max(1, math.ceil(TARGET_SHARE * dense.steps))
    return smoothed(dense.losses[:after], window(dense.steps))[-1]


@dataclass(frozen=True)
class Reached:
    """When a scheme had the loss that is waited for."""

    steps: int
    seconds: float
    against_dense: float  # dense's seconds over its own: 2 is twice as fast


def baseline(results: Sequence[Result]) -> Result | None:
    """The dense run that the others are compared with, if there is one."""
    return next((result for result in results if result.dense), None)


def reached(result: Result, dense: Result) -> Reached | None:
    """When `result` had the loss that `dense` had after its share of steps; none if it never had."""
    target, count = target_of(dense), window(dense.steps)
    ours, theirs = steps_until(result.losses, target, count), steps_until(dense.losses, target, count)
    if ours is None or theirs is None:
        return None
    seconds = result.seconds_after(ours)
    return Reached(ours, seconds, dense.seconds_after(theirs) / seconds if seconds > 0 else 1.0)


def as_json(settings: dict[str, Any], results: Sequence[Result]) -> dict[str, Any]:
    """summary.json: the settings of the run and every figure of every scheme."""
    dense = baseline(results)
    schemes = []
    for result in results:
        entry = asdict(result)
        entry["reduction"] = result.reduction
        entry["median_step_ms"] = result.median_step_ms
        when = reached(result, dense) if dense else None
        entry["reached"] = asdict(when) if when else None
        schemes.append(entry)
    target = target_of(dense) / math.log(2.0) if dense else None
    return {**settings, "target_bits": target, "schemes": schemes}


def from_json(summary: dict[str, Any]) -> tuple[dict[str, Any], list[Result]]:
    """The settings and the runs of a summary."""
    names = {each.name for each in fields(Result)}
    results = [Result(**{key: value for key, value in entry.items() if key in names}) for entry in summary["schemes"]]
    return {key: value for key, value in summary.items() if key not in ("schemes", "target_bits")}, results
