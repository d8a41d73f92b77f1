"""ADTopk's partial sparsification compared with every threshold."""

from __future__ import annotations

import random

from . import planner_costs as costs
from .planner_models import measured_model
from .planner_probe import Model, PlannerProbe


def time_of(model: Model, bucket: list[int], choices: list[int]) -> float:
    return sum(
        costs.encode(model, bucket, choices)
        + costs.exchange(model, bucket, phase, choices)
        + costs.decode(model, bucket, choices)
        for phase in range(model.period)
    )


def is_measured(model: Model) -> bool:
    """A negative, infinite or missing fixed part means that the candidate never ran."""
    choosers = [g for g in model.gradients if len(g.candidates) > 1]
    return bool(choosers) and all(
        0 <= fixed < float("inf")
        for g in choosers
        for c in g.candidates
        for fixed in (c.encode_fixed_us, c.decode_fixed_us)
    )


def best_choices(model: Model, bucket: list[int], within_budget: bool) -> list[int]:
    """A gradient is sent dense if it has a dense candidate and at most v elements. Finds the v of least cost, and
    of equal costs the smallest v."""

    def sent(number: int, choice: int) -> int:
        return sum(model.gradients[number].candidates[choice].phase_bytes)

    budget = sum(sent(number, 0) for number in bucket)
    sizes = sorted({model.gradients[number].numel for number in bucket if len(model.gradients[number].candidates) > 1})
    best: tuple[float, list[int]] | None = None
    for size in [-1, *sizes]:
        choices = [int(len(model.gradients[n].candidates) > 1 and model.gradients[n].numel <= size) for n in bucket]
        dense = sum(sent(number, 1) for number, choice in zip(bucket, choices, strict=True) if choice)
        if within_budget and dense > budget and size >= 0:
            break
        cost = time_of(model, bucket, choices)
        if best is None or cost < best[0]:
            best = (cost, choices)
    assert best is not None
    return best[1]


def test_the_choice_is_that_of_all_thresholds_tried(probe: PlannerProbe) -> None:
    source = random.Random(21)
    tried = 0
    for _ in range(2500):
        model = measured_model(source, 12, two_candidates=True)
        if not is_measured(model):
            continue
        tried += 1
        count = source.randint(1, 12)
        within_budget = source.random() < 0.5
        plan = probe.plan("partial", model, bucket_count=count, within_budget=within_budget)
        expected: dict[int, int] = {}
        for begin in range(0, len(model.order), count):
            bucket = model.order[begin : begin + count]
            expected.update(zip(bucket, best_choices(model, bucket, within_budget), strict=True))
        planned = [pair for bucket in plan.buckets for pair in zip(bucket.gradients, bucket.choices, strict=True)]
        assert all(expected[number] == choice for number, choice in planned), model
        for number, choice in expected.items():
            sent = model.gradients[number].candidates[choice].phase_bytes
            phases = [b.phase for b in plan.buckets if number in b.gradients]
            assert phases == ([phase for phase in range(model.period) if sent[phase] > 0] or [0])
    assert tried > 500


def test_what_never_ran_is_probed(probe: PlannerProbe) -> None:
    """For any present measurements, two rounds of probing run every candidate."""
    source = random.Random(22)
    for _ in range(300):
        model = measured_model(source, 30, two_candidates=True)
        if not any(len(g.candidates) > 1 for g in model.gradients):
            continue
        known: set[str] = set()
        count = source.randint(1, 30)
        names = {c.compressor for g in model.gradients if len(g.candidates) > 1 for c in g.candidates}
        for _ in range(3):
            for gradient in model.gradients:
                for candidate in gradient.candidates:
                    fixed = 1.0 if candidate.compressor in known else -1.0
                    candidate.encode_fixed_us = candidate.decode_fixed_us = fixed
            if names <= known:
                break
            plan = probe.plan("partial", model, bucket_count=count)
            for bucket in plan.buckets:
                for number, choice in zip(bucket.gradients, bucket.choices, strict=True):
                    known.add(model.gradients[number].candidates[choice].compressor)
        assert names <= known
