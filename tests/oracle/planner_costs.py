"""Definitions that the oracles of planners share: the gradients of a phase, their ready times, and the cost of a
bucket.

Each cost is computed from the definition for the whole bucket and is never updated while the bucket grows. Functions
take gradients as indices into the model's list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .planner_probe import GATHER, GIVEN_BUCKETS, NO_BUCKET, Candidate, Model

Buckets = list[list[int]]


def usable(time: float) -> float:
    """The time, or zero if it is negative, infinite or no number."""
    return time if math.isfinite(time) and time > 0 else 0.0


def chosen(model: Model, gradient: int) -> Candidate:
    return model.gradients[gradient].candidates[0]


def order_of(model: Model) -> list[int]:
    """Gradients in order of readiness."""
    return model.order or list(reversed(range(len(model.gradients))))


def taking_part(model: Model, phase: int) -> list[int]:
    """The gradients that send something in the phase. Phase 0 also has the gradients that never send anything."""
    return [
        g for g in order_of(model)
        if chosen(model, g).phase_bytes[phase] > 0 or (phase == 0 and not any(chosen(model, g).phase_bytes))
    ]


def given(model: Model, phase: int) -> Buckets:
    """Given buckets, each at the place of its last member; without a given bucket a gradient stands alone."""
    part = taking_part(model, phase)
    places: dict[object, list[int]] = {}
    for g in part:
        bucket = model.gradients[g].given_bucket
        places.setdefault(("alone", g) if bucket == NO_BUCKET else bucket, []).append(g)
    return sorted(places.values(), key=lambda members: part.index(members[-1]))


def are_given(model: Model) -> bool:
    return bool(model.flags & GIVEN_BUCKETS)


def ready_times(model: Model, gradients: Sequence[int]) -> list[float]:
    """The largest usable time up to each gradient."""
    times = [usable(model.gradients[g].ready_us) for g in gradients]
    return [max(times[: i + 1]) for i in range(len(times))]


def ready_by_elements(model: Model, gradients: Sequence[int], backward: float) -> list[float]:
    """Distributes the time of backward by elements. Without elements all are ready at once."""
    sizes = [model.gradients[g].numel for g in gradients]
    total = sum(sizes)
    return [backward * sum(sizes[: i + 1]) / total if total > 0 else 0.0 for i in range(len(sizes))]


def startup(model: Model) -> float:
    return max([usable(link.alpha_us) for link in model.links], default=0.0)


def message(model: Model, amount: float) -> float:
    """A message of `amount` bytes on the slowest level."""
    return max([usable(li.alpha_us) + usable(li.beta_us_per_byte) * amount for li in model.links], default=0.0)


def exchange(model: Model, gradients: Sequence[int], phase: int, choices: Sequence[int] | None = None) -> float:
    """One message for all sums and one for all gathers. A gather counts as P/2 times its bytes. If there is neither,
    one empty message. Each further round adds the start-up time of a message. If no choices are given, each
    gradient has its first candidate."""
    candidates = candidates_of(model, gradients, choices)
    gathered = sum(c.phase_bytes[phase] for c in candidates if c.combine == GATHER)
    summed = sum(c.phase_bytes[phase] for c in candidates if c.combine != GATHER)
    amounts = [a for a in (summed, gathered * max(1.0, model.world / 2)) if a > 0]
    time = sum(message(model, a) for a in amounts) or startup(model)
    return time + (max(c.n_rounds for c in candidates) - 1) * startup(model)


def candidates_of(model: Model, gradients: Sequence[int], choices: Sequence[int] | None) -> list[Candidate]:
    return [model.gradients[g].candidates[c] for g, c in zip(gradients, choices or [0] * len(gradients), strict=True)]


def encode(model: Model, gradients: Sequence[int], choices: Sequence[int] | None = None) -> float:
    """Compensate and encode: a fixed time for each compressor of the bucket, and a time for each element."""
    candidates = candidates_of(model, gradients, choices)
    fixed: dict[str, float] = {}
    for c in candidates:
        fixed.setdefault(c.compressor, usable(c.encode_fixed_us))
    return sum(fixed.values()) + sum(
        usable(c.encode_per_element_us) * model.gradients[g].numel for g, c in zip(gradients, candidates, strict=True)
    )


def decode(model: Model, gradients: Sequence[int], choices: Sequence[int] | None = None) -> float:
    """As `encode`."""
    candidates = candidates_of(model, gradients, choices)
    fixed: dict[str, float] = {}
    for c in candidates:
        fixed.setdefault(c.compressor, usable(c.decode_fixed_us))
    return sum(fixed.values()) + sum(
        usable(c.decode_per_element_us) * model.gradients[g].numel for g, c in zip(gradients, candidates, strict=True)
    )


def by_count(model: Model, phase: int, count: int) -> Buckets:
    part = taking_part(model, phase)
    return [part[i : i + count] for i in range(0, len(part), count)]


Groups = list[list[int]]  # positions in the order of readiness


def as_buckets(gradients: Sequence[int], groups: Groups) -> Buckets:
    return [[gradients[position] for position in group] for group in groups]


def merge_in_turn(n: int, merges: Callable[[Groups, int], bool]) -> Groups:
    """Begins with n groups of one gradient, in order. `merges(groups, i)` returns true if group i is joined with the
    next group. It computes its answer from the present list of groups."""
    groups = [[position] for position in range(n)]
    i = 0
    while i + 1 < len(groups):
        if merges(groups, i):
            groups[i : i + 2] = [groups[i] + groups[i + 1]]
        else:
            i += 1
    return groups
