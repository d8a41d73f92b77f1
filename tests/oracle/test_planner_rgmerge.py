"""RGMerge's planner against all cuts of few gradients, and against many random cuts of many gradients."""

from __future__ import annotations

import itertools
import random

from . import planner_costs as costs
from .planner_models import measured_model
from .planner_probe import Model, PlannerProbe


def end_of(model: Model, buckets: list[list[int]], phase: int, caution: float) -> float:
    """The time when the last bucket is decoded. One engine encodes and one link carries, bucket after
    bucket."""
    members = costs.taking_part(model, phase)
    ready = dict(zip(members, costs.ready_times(model, members), strict=True))
    engine = link = decode = 0.0
    for bucket in buckets:
        engine = max(engine, *(ready[number] for number in bucket)) + caution * costs.encode(model, bucket)
        link = max(link, engine) + costs.exchange(model, bucket, phase)
        decode = costs.decode(model, bucket)
    return link + decode


def cut(members: list[int], ends: set[int]) -> list[list[int]]:
    """Runs of members. A number in `ends` ends the run before it."""
    buckets: list[list[int]] = []
    for place, number in enumerate(members):
        if place == 0 or place in ends:
            buckets.append([])
        buckets[-1].append(number)
    return buckets


def test_no_cut_of_few_gradients_ends_sooner(probe: PlannerProbe) -> None:
    source = random.Random(11)
    for _ in range(2000):
        model = measured_model(source, 7)
        caution = source.choice([1.0, 1.5, 3.0])
        plan = probe.plan("rgmerge", model, caution=caution)
        for phase in range(model.period):
            members = costs.taking_part(model, phase)
            planned = plan.gradients(phase)
            assert [number for bucket in planned for number in bucket] == members
            if not members:
                continue
            places = range(1, len(members))
            best = min(
                end_of(model, cut(members, set(ends)), phase, caution)
                for count in range(len(members))
                for ends in itertools.combinations(places, count)
            )
            assert end_of(model, planned, phase, caution) == best, model


def test_no_random_cut_of_many_gradients_ends_sooner(probe: PlannerProbe) -> None:
    source = random.Random(12)
    for _ in range(100):
        model = measured_model(source, 60)
        caution = source.choice([1.0, 1.5, 3.0])
        plan = probe.plan("rgmerge", model, caution=caution)
        for phase in range(model.period):
            members = costs.taking_part(model, phase)
            if not members:
                continue
            planned = end_of(model, plan.gradients(phase), phase, caution)
            for _ in range(40):
                rate = source.random()
                ends = {place for place in range(1, len(members)) if source.random() < rate}
                assert planned <= end_of(model, cut(members, ends), phase, caution)


def test_the_same_model_gives_the_same_plan(probe: PlannerProbe) -> None:
    source = random.Random(13)
    for _ in range(50):
        model = measured_model(source, 40)
        assert probe.plan("rgmerge", model) == probe.plan("rgmerge", model)
