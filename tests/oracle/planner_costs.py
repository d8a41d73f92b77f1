"""What single actions cost on a model, written from docs and headers with plain loops: for the oracles of planners.

A call encodes all gradients of a bucket that have one compressor: fixed, once, + per element. A message takes
alpha + beta * bytes on the slowest link; a gather of b bytes by each of P ranks counts as P / 2 times b, at least b.
Summed and gathered payloads of a bucket are two messages. What is negative, infinite or no number is unmeasured: zero.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from .planner_probe import GATHER, MEASURED, SUM, Candidate, Gradient, Link, Model

Choice = tuple[int, int]  # gradient, candidate


def time(us: float) -> float:
    return us if math.isfinite(us) and us > 0 else 0.0


def encode(model: Model, bucket: Sequence[Choice]) -> float:
    return _coding(model, bucket, "encode")


def decode(model: Model, bucket: Sequence[Choice]) -> float:
    return _coding(model, bucket, "decode")


def _coding(model: Model, bucket: Sequence[Choice], what: str) -> float:
    total = 0.0
    fixed: dict[str, float] = {}
    for number, choice in bucket:
        candidate = model.gradients[number].candidates[choice]
        fixed.setdefault(candidate.compressor, time(getattr(candidate, f"{what}_fixed_us")))
        total += time(getattr(candidate, f"{what}_per_element_us")) * model.gradients[number].numel
    return total + sum(fixed.values())


def start_up(model: Model) -> float:
    return max((time(link.alpha_us) for link in model.links), default=0.0)


def message(model: Model, size: float) -> float:
    return max((time(link.alpha_us) + time(link.beta_us_per_byte) * size for link in model.links), default=0.0)


def exchange(model: Model, bucket: Sequence[Choice], phase: int) -> float:
    summed = gathered = 0.0
    rounds = 1
    for number, choice in bucket:
        candidate = model.gradients[number].candidates[choice]
        if candidate.combine == GATHER:
            gathered += candidate.phase_bytes[phase]
        else:
            summed += candidate.phase_bytes[phase]
        rounds = max(rounds, candidate.n_rounds)
    total = 0.0
    if summed > 0:
        total += message(model, summed)
    if gathered > 0:
        total += message(model, gathered * max(1.0, model.world / 2))
    if total == 0:
        total = start_up(model)
    return total + (rounds - 1) * start_up(model)


def ready_times(model: Model, members: Sequence[int]) -> list[float]:
    """By gradient: the running maximum over members, which are in order of readiness."""
    times = [0.0] * len(model.gradients)
    latest = 0.0
    for number in members:
        latest = max(latest, time(model.gradients[number].ready_us))
        times[number] = latest
    return times


def takes_part(model: Model, number: int, phase: int) -> bool:
    sent = model.gradients[number].candidates[0].phase_bytes
    return sent[phase] > 0 or (phase == 0 and not any(sent))


def random_model(source: random.Random, most_gradients: int, two_candidates: bool = False) -> Model:
    """Times are multiples of 1/8 and small, so that sums of them are exact in whatever order they are added."""

    def eighths(most: int) -> float:
        return source.randint(0, 8 * most) / 8

    absurd = [0.0, -1.0, math.inf, -math.inf, math.nan]

    def maybe_absurd(value: float) -> float:
        return source.choice(absurd) if source.random() < 0.05 else value

    period = source.choice([1, 1, 1, 2])
    names = ["none"] if source.random() < 0.5 else ["topk", "none"]
    lines = {name: [maybe_absurd(eighths(20)), source.randint(0, 4) / 8, maybe_absurd(eighths(5)), source.randint(0, 2) / 8]
             for name in ["none", "topk"]}
    combines = {"none": SUM, "topk": source.choice([SUM, GATHER])}

    def candidate(name: str, numel: int) -> Candidate:
        most = 4 * numel if name == "none" else 1 + numel
        sent = [source.randint(0, 1) * most if source.random() < 0.2 else most for _ in range(period)]
        return Candidate(sent, name, *lines[name], combine=combines[name], n_rounds=source.choice([1, 1, 1, 2]))

    gradients = []
    ready = 0.0
    for number in range(source.randint(1, most_gradients)):
        numel = source.choice([0, 1, source.randint(1, 40), source.randint(1, 400)])
        ready += source.choice([0.0, eighths(10), eighths(60)])
        name = source.choice(names)
        own = [candidate(name, numel)]
        if two_candidates and name != "none":
            own.append(candidate("none", numel))
        gradients.append(Gradient(f"g{number}", [numel], 4 * numel, own, maybe_absurd(ready)))
    links = [Link(maybe_absurd(eighths(60)), maybe_absurd(source.randint(0, 8) / 8)) for _ in range(source.choice([0, 1, 1, 1, 2]))]
    return Model(gradients, list(range(len(gradients))), links, world=source.choice([1, 2, 4, 8]), period=period, flags=MEASURED)
