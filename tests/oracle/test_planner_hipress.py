"""HiPress's decisions compared with all possible decisions, gradient by gradient, and the plans on the machine."""

from __future__ import annotations

import random

from . import planner_costs as costs
from .planner_machine import Bucket, run_backward
from .planner_models import measured_model
from .planner_probe import GATHER, Model, PlannerProbe
from .test_planner_partial import is_measured

Piece = tuple[int, int, int, int]  # gradient, first, number of elements, choice


def pipeline(model: Model, number: int, choice: int, parts: int) -> float:
    """Each part is encoded, sent and decoded. A part travels while the engine works on other parts."""
    gradient = model.gradients[number]
    candidate = gradient.candidates[choice]
    total = 0.0
    for sent in candidate.phase_bytes:
        if sent == 0:
            continue
        elements, amount = gradient.numel / parts, sent / parts
        encode = costs.usable(candidate.encode_fixed_us) + costs.usable(candidate.encode_per_element_us) * elements
        decode = costs.usable(candidate.decode_fixed_us) + costs.usable(candidate.decode_per_element_us) * elements
        if candidate.combine == GATHER:
            amount *= max(1.0, model.world / 2)
        exchange = costs.message(model, amount) + (candidate.n_rounds - 1) * costs.startup(model)
        engine = link = 0.0
        engine += encode  # the first part waits for no other part, and no part follows the last
        link = engine + exchange
        slower = max(encode + decode, exchange)
        for _ in range(parts - 1):
            link += slower
        total += link + decode
    return total


def units(model: Model, number: int, choice: int) -> int:
    alignment = model.gradients[number].candidates[choice].part_alignment
    return -(-model.gradients[number].numel // alignment) if alignment else 1


def decided(model: Model, number: int, choices: list[int], most: int) -> tuple[int, int]:
    """If costs are equal, dense comes before compressed, and fewer parts before more parts."""
    ways = [
        (pipeline(model, number, choice, parts), -choice, parts)
        for choice in choices
        for parts in range(1, max(1, min(most, units(model, number, choice))) + 1)
    ]
    # Sums in another order may differ in the last place.
    least = min(way[0] for way in ways)
    near = [way for way in ways if way[0] <= least + 1e-9 * abs(least)]
    _, choice, parts = min(near, key=lambda way: (way[1], way[2]))
    return -choice, parts


def cut(model: Model, number: int, choice: int, parts: int) -> list[Piece]:
    """Parts whose numbers of units differ by at most one, with the larger parts first."""
    gradient = model.gradients[number]
    unit = gradient.candidates[choice].part_alignment or gradient.numel
    pieces: list[Piece] = []
    first = 0
    for part in range(parts):
        count = (units(model, number, choice) + parts - 1 - part) // parts * unit
        count = min(count, gradient.numel - first)
        pieces.append((number, first, count, choice))
        first += count
    assert first == gradient.numel
    return pieces


def buckets_of(model: Model, decisions: list[tuple[int, int]], bulk_bytes: int) -> list[list[Piece]]:
    buckets: list[list[Piece]] = []
    waiting: dict[int, list[Piece]] = {0: [], 1: []}
    for number in costs.order_of(model):
        choice, parts = decisions[number]
        if parts > 1:
            buckets += [[piece] for piece in cut(model, number, choice, parts)]
            continue
        waiting[choice] += cut(model, number, choice, 1)
        amounts = [max(model.gradients[g].candidates[c].phase_bytes) for g, _, _, c in waiting[choice]]
        if sum(amounts) >= bulk_bytes:
            buckets.append(waiting[choice])
            waiting[choice] = []
    return buckets + [rest for rest in waiting.values() if rest]


def in_phase(model: Model, buckets: list[list[Piece]], phase: int) -> list[list[Piece]]:
    def sends(piece: Piece) -> bool:
        sent = model.gradients[piece[0]].candidates[piece[3]].phase_bytes
        return sent[phase] > 0 or (phase == 0 and not any(sent))

    return [part for part in ([p for p in pieces if sends(p)] for pieces in buckets) if part]


def on_the_machine(model: Model, pieces: list[Piece], phase: int) -> Bucket:
    encode = decode = summed = gathered = 0.0
    called: set[str] = set()
    rounds = 1
    for number, _, numel, choice in pieces:
        candidate = model.gradients[number].candidates[choice]
        new = candidate.compressor not in called
        called.add(candidate.compressor)
        encode += costs.usable(candidate.encode_per_element_us) * numel + new * costs.usable(candidate.encode_fixed_us)
        decode += costs.usable(candidate.decode_per_element_us) * numel + new * costs.usable(candidate.decode_fixed_us)
        whole = model.gradients[number].numel
        amount = candidate.phase_bytes[phase] * (numel / whole if whole else 1.0)
        if candidate.combine == GATHER:
            gathered += amount * max(1.0, model.world / 2)
        else:
            summed += amount
        rounds = max(rounds, candidate.n_rounds)
    exchange = sum(costs.message(model, amount) for amount in (summed, gathered) if amount > 0) or costs.startup(model)
    exchange += (rounds - 1) * costs.startup(model)
    ready = max(costs.usable(model.gradients[number].ready_us) for number, *_ in pieces)
    return Bucket(ready, encode, exchange, decode, 0.0)


def exposed(model: Model, buckets: list[list[Piece]]) -> float:
    backward = max(costs.usable(model.backward_us), *(costs.usable(g.ready_us) for g in model.gradients))
    total = 0.0
    for phase in range(model.period):
        machine = [on_the_machine(model, pieces, phase) for pieces in in_phase(model, buckets, phase)]
        total += max(backward, run_backward(machine, decodes=True)) - backward
    return total / model.period


def random_model(source: random.Random) -> Model:
    model = measured_model(source, 10, two_candidates=True)
    for gradient in model.gradients:
        for candidate in gradient.candidates:
            candidate.part_alignment = source.choice((0, 1, 1, 8, 50))
    return model


def planned(probe: PlannerProbe, model: Model, most: int, bulk_bytes: int) -> list[list[list[Piece]]]:
    plan = probe.plan("hipress", model, most_parts=most, bulk_bytes=bulk_bytes)
    return [
        [
            [(g, first, numel, choice) for g, (first, numel), choice in zip(b.gradients, b.ranges, b.choices, strict=True)]
            for b in plan.of_phase(phase)
        ]
        for phase in range(model.period)
    ]


def test_the_plan_is_that_of_all_ways_tried(probe: PlannerProbe) -> None:
    source = random.Random(31)
    tried = mixed = in_parts = 0
    while tried < 600:
        model = random_model(source)
        if not is_measured(model):
            continue
        tried += 1
        most, bulk_bytes = source.choice((1, 3, 16)), source.choice((0, 200, 10_000))
        numbers = range(len(model.gradients))
        ways = []
        for allowed in ((0, 1), (0,), (1,)):
            decisions = [
                decided(model, n, [c for c in range(len(model.gradients[n].candidates)) if c in allowed] or [0], most) for n in numbers
            ]
            buckets = buckets_of(model, decisions, bulk_bytes)
            ways.append((exposed(model, buckets), buckets))
        least = min(way[0] for way in ways)
        near = [way[1] for way in ways if way[0] <= least + 1e-6 * (1 + abs(least))]
        plan = planned(probe, model, most, bulk_bytes)
        assert plan in [[in_phase(model, buckets, phase) for phase in range(model.period)] for buckets in near], model
        chosen = {piece[3] for pieces in plan[0] for piece in pieces}
        mixed += len(chosen) == 2
        in_parts += any(piece[1] > 0 for pieces in plan[0] for piece in pieces)
    assert mixed > 60 and in_parts > 60


def test_a_part_begins_where_the_compressor_allows(probe: PlannerProbe) -> None:
    source = random.Random(32)
    for _ in range(500):
        model = random_model(source)
        for phase in planned(probe, model, 16, 0):
            for number, first, numel, choice in (piece for pieces in phase for piece in pieces):
                gradient = model.gradients[number]
                alignment = gradient.candidates[choice].part_alignment
                assert first == 0 if alignment == 0 else first % alignment == 0
                assert alignment != 0 or numel == gradient.numel
