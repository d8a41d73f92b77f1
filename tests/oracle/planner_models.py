"""Random models for the oracles of planners. Every time is a multiple of 1/8 and every number is small, so that sums
and products in double precision are exact. So the order of additions does not matter, and ties, which are made
often, are ties for every implementation.
"""

from __future__ import annotations

import random

from .planner_probe import FLAT, GATHER, GIVEN_BUCKETS, HIERARCHICAL, MEASURED, NO_BUCKET, SHARD, SUM, Candidate
from .planner_probe import Gradient, Link, Model

BROKEN = (-1.0, float("nan"), float("inf"), float("-inf"))


def eighths(draw: random.Random, most: int) -> float:
    """Up to `most`, often whole, sometimes zero, sometimes an invalid time."""
    kind = draw.random()
    if kind < 0.04:
        return draw.choice(BROKEN)
    if kind < 0.14:
        return 0.0
    return draw.randrange(8 * most) / 8 if kind < 0.5 else float(draw.randrange(most + 1))


def candidate(draw: random.Random, numel: int, period: int, calm: bool) -> Candidate:
    """Calm: sent dense in every phase, as most gradients of a model."""
    sizes = [4 * numel if calm else draw.choice((0, 1, 8, 4 * numel, numel // 2)) for _ in range(period)]
    return Candidate(
        phase_bytes=sizes,
        compressor=draw.choice(("none", "topk")),
        encode_fixed_us=eighths(draw, 8),
        encode_per_element_us=draw.choice((0.0, 0.125, 0.25, 0.25, draw.choice(BROKEN))),
        decode_fixed_us=eighths(draw, 8),
        decode_per_element_us=draw.choice((0.0, 0.125)),
        combine=SUM if calm else draw.choice((SUM, GATHER)),
        n_rounds=1 if calm else draw.choice((1, 1, 2)),
    )


def gradients(draw: random.Random, n: int, period: int, candidates: int) -> list[Gradient]:
    result = []
    for i in range(n):
        numel = draw.choice((0, 1, 4, 40, 40, draw.randrange(200)))
        calm = draw.random() < 0.6
        result.append(Gradient(
            f"layer{i}.weight", [numel], 4 * numel,
            [candidate(draw, numel, period, calm) for _ in range(candidates)],
            given_bucket=draw.choice((0, 1, 2, NO_BUCKET)),
        ))
    return result


def set_ready_times(draw: random.Random, model: Model, order: list[int]) -> None:
    """Ascending in the agreed order, with equal neighbours, and sometimes a time that runs backwards or is invalid."""
    gap = draw.choice((2, 20, 100))
    now = eighths(draw, gap) if draw.random() < 0.5 else 0.0
    now = now if now >= 0 and now < float("inf") else 0.0
    for g in order:
        kind = draw.random()
        model.gradients[g].ready_us = eighths(draw, 50) if kind < 0.05 else now
        now += 0.0 if kind > 0.85 else draw.randrange(8 * gap) / 8
    model.backward_us = now


def random_model(draw: random.Random, most_gradients: int = 16, candidates: int = 1) -> Model:
    """Any model that a planner may get: one gradient or many, two phases, broken links, no measurements, given
    buckets."""
    n = draw.choice((1, 2, 3, draw.randint(1, most_gradients), most_gradients))
    period = draw.choice((1, 1, 2))
    model = Model(gradients(draw, n, period, candidates), world=draw.randint(1, 9), period=period)
    if draw.random() < 0.7:
        model.order = draw.sample(range(n), n)
    order = model.order or list(reversed(range(n)))
    set_ready_times(draw, model, order)
    for _ in range(draw.choice((0, 1, 1, 1, 2))):
        slope = draw.choice((0.0, 0.125, 0.25, 1.0, draw.choice(BROKEN)))
        model.links.append(Link(eighths(draw, draw.choice((8, 60))), slope, draw.choice((1, 2, 3))))
    model.flags = 0 if draw.random() < 0.1 else MEASURED
    if draw.random() < 0.1:
        model.flags |= GIVEN_BUCKETS
    model.route = draw.choice((0, 0, FLAT, HIERARCHICAL, SHARD))
    return model


def measured_model(source: random.Random, most_gradients: int, two_candidates: bool = False) -> Model:
    """A model whose compressors have one line of costs each, as the runtime measures them, and sometimes an absurd
    value. With two candidates, compressed gradients may also be sent dense."""

    def rounded(most: int) -> float:
        return source.randint(0, 8 * most) / 8

    absurd = [0.0, *BROKEN]

    def maybe_absurd(value: float) -> float:
        return source.choice(absurd) if source.random() < 0.05 else value

    period = source.choice([1, 1, 1, 2])
    names = ["none"] if source.random() < 0.5 else ["topk", "none"]
    lines = {name: [maybe_absurd(rounded(20)), source.randint(0, 4) / 8, maybe_absurd(rounded(5)), source.randint(0, 2) / 8]
             for name in ["none", "topk"]}
    combines = {"none": SUM, "topk": source.choice([SUM, GATHER])}

    def made(name: str, numel: int) -> Candidate:
        most = 4 * numel if name == "none" else 1 + numel
        sent = [source.randint(0, 1) * most if source.random() < 0.2 else most for _ in range(period)]
        return Candidate(sent, name, *lines[name], combine=combines[name], n_rounds=source.choice([1, 1, 1, 2]))

    gradients = []
    ready = 0.0
    for number in range(source.randint(1, most_gradients)):
        numel = source.choice([0, 1, source.randint(1, 40), source.randint(1, 400)])
        ready += source.choice([0.0, rounded(10), rounded(60)])
        name = source.choice(names)
        own = [made(name, numel)]
        if two_candidates and name != "none":
            own.append(made("none", numel))
        gradients.append(Gradient(f"g{number}", [numel], 4 * numel, own, maybe_absurd(ready)))
    links = [Link(maybe_absurd(rounded(60)), maybe_absurd(source.randint(0, 8) / 8)) for _ in range(source.choice([0, 1, 1, 1, 2]))]
    return Model(gradients, list(range(len(gradients))), links, world=source.choice([1, 2, 4, 8]), period=period, flags=MEASURED)
