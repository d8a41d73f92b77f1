"""The scheduler that searches against all cuts of few gradients, and against many random cuts of many gradients.

The exposed time of a cut is computed here from the rules of the machine alone, moment by moment: backward makes
gradients ready. An engine does one thing at a time, decodes arrived buckets before it encodes, and takes the earlier
bucket first. A link carries the buckets in order. On route split the second half of each exchange, and decoding,
come in the next forward, from the last bucket to the first.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest

from . import planner_costs as costs
from .planner_machine import Bucket, run_backward
from .planner_models import BROKEN, measured_model, random_model
from .planner_probe import FLAT, HIERARCHICAL, MEASURED, SHARD, SPLIT, Model, PlannerProbe


def bucket_of(model: Model, members: list[int], phase: int) -> Bucket:
    gradients = [model.gradients[number] for number in members]
    return Bucket(
        max(costs.usable(gradient.ready_us) for gradient in gradients),
        costs.encode(model, members),
        costs.exchange(model, members, phase),
        costs.decode(model, members),
        min(costs.usable(gradient.forward_us) for gradient in gradients),
    )


def exposed(model: Model, cut: list[list[int]], phase: int) -> float:
    backward = max(costs.usable(model.backward_us), *(costs.usable(g.ready_us) for g in model.gradients))
    buckets = [bucket_of(model, members, phase) for members in cut]
    if model.route != SPLIT:
        return max(backward, run_backward(buckets, decodes=True)) - backward
    for bucket in buckets:
        bucket.exchange /= 2
    late = max(backward, run_backward(buckets, decodes=False)) - backward
    gathered = decoded = stall = 0.0  # after the start of forward
    for bucket in reversed(buckets):
        gathered += bucket.exchange
        decoded = max(decoded, gathered) + bucket.decode
        stall = max(stall, decoded - bucket.needed)
    return late + stall


def cut_after(members: list[int], places: set[int]) -> list[list[int]]:
    """Runs of members. A run begins at each of `places`."""
    cut: list[list[int]] = []
    for place, number in enumerate(members):
        if place == 0 or place in places:
            cut.append([])
        cut[-1].append(number)
    return cut


def all_cuts(members: list[int]) -> Iterator[list[list[int]]]:
    for count in range(len(members)):
        for places in itertools.combinations(range(1, len(members)), count):
            yield cut_after(members, set(places))


def set_forward_times(source: random.Random, model: Model) -> None:
    for place, number in enumerate(reversed(model.order)):
        absurd = source.random() < 0.05
        model.gradients[number].forward_us = source.choice(BROKEN) if absurd else place * source.randint(0, 400) / 8


def next_model(source: random.Random, most: int, routes: list[int]) -> Model:
    """Mostly models as the runtime measures them, some very unusual. Ready times may run backwards."""
    model = measured_model(source, most) if source.random() < 0.7 else random_model(source, most)
    model.order = model.order or list(reversed(range(len(model.gradients))))
    if source.random() < 0.6:
        for number, ready in zip(model.order, costs.ready_times(model, model.order), strict=True):
            model.gradients[number].ready_us = ready
    set_forward_times(source, model)
    model.flags = MEASURED
    model.route = source.choice(routes)
    return model


WHOLE = [0, FLAT, HIERARCHICAL, SHARD]


@pytest.mark.parametrize(("routes", "seed"), [(WHOLE, 31), ([SPLIT], 32)], ids=["whole", "split"])
def test_no_cut_of_few_gradients_exposes_less(probe: PlannerProbe, routes: list[int], seed: int) -> None:
    source = random.Random(seed)
    for number in range(1500):
        model = next_model(source, 12 if number % 50 == 0 else 7, routes)
        plan = probe.plan("optimal", model)
        for phase in range(model.period):
            members = costs.taking_part(model, phase)
            planned = plan.gradients(phase)
            assert [gradient for bucket in planned for gradient in bucket] == members
            if not members:
                continue
            least = min(exposed(model, cut, phase) for cut in all_cuts(members))
            assert exposed(model, planned, phase) == least, (number, phase, model)


@pytest.mark.parametrize(("routes", "seed"), [(WHOLE, 33), ([SPLIT], 34)], ids=["whole", "split"])
def test_no_random_cut_of_many_gradients_exposes_less(probe: PlannerProbe, routes: list[int], seed: int) -> None:
    source = random.Random(seed)
    for _ in range(80):
        model = next_model(source, 60, routes)
        plan = probe.plan("optimal", model)
        for phase in range(model.period):
            members = costs.taking_part(model, phase)
            if not members:
                continue
            planned = exposed(model, plan.gradients(phase), phase)
            for _ in range(40):
                rate = source.random()
                places = {place for place in range(1, len(members)) if source.random() < rate}
                assert planned <= exposed(model, cut_after(members, places), phase)


def test_the_plan_of_route_split_reduces_in_order_and_gathers_in_reverse(probe: PlannerProbe) -> None:
    source = random.Random(35)
    for _ in range(100):
        model = next_model(source, 20, [SPLIT])
        plan = probe.plan("optimal", model)
        assert all(bucket.route == SPLIT for bucket in plan.buckets)
        expected = []
        for phase in range(model.period):
            n = len(plan.of_phase(phase))
            expected += [[phase, bucket, 0, 0] for bucket in range(n)]
            expected += [[phase, bucket, 1, 0] for bucket in reversed(range(n))]
        assert plan.messages == expected


def test_the_same_model_gives_the_same_plan(probe: PlannerProbe) -> None:
    source = random.Random(36)
    for _ in range(40):
        model = next_model(source, 90, [*WHOLE, SPLIT])
        assert probe.plan("optimal", model) == probe.plan("optimal", model)
