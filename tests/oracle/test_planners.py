"""The schedulers against oracles of their rules, on random models through one process."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable

import pytest

from . import planner_costs as costs
from . import planners
from .planner_models import random_model
from .planner_probe import (FLAT, GATHER, GIVEN_BUCKETS, MEASURED, READY, SET_COMPLETE, Link, Model, PlannerProbe,
                            Refused, dense)
from .planners import Undecided

N_MODELS = 1500


def measured_rule(model: Model, phase: int, count: int, rule: Callable[[], costs.Buckets]) -> costs.Buckets:
    """The common conditions of rules that plan from measured times."""
    if costs.are_given(model):
        return costs.given(model, phase)
    return rule() if model.flags & MEASURED else costs.by_count(model, phase, count)


def expect_plan(probe: PlannerProbe, scheduler: str, model: Model, oracle: Callable[[Model, int], costs.Buckets],
                launch: int = READY, **options: bool | int | float | str) -> list[int]:
    """Compares all phases. Returns the sizes of the buckets."""
    expected = [oracle(model, phase) for phase in range(model.period)]
    plan = probe.plan(scheduler, model, **options)
    assert [plan.gradients(phase) for phase in range(model.period)] == expected, model
    for bucket in plan.buckets:
        assert (bucket.route, bucket.launch) == (model.route or FLAT, launch)
        assert bucket.ranges == [(0, model.gradients[g].numel) for g in bucket.gradients]
        assert not any(bucket.choices)
    return [len(bucket.gradients) for bucket in plan.buckets]


def expect_variety(sizes: list[int]) -> None:
    """Models that all end in one bucket, or all in single gradients, would test little."""
    counts = collections.Counter(sizes)
    alone = counts[1] / len(sizes)
    assert 0.2 < alone < 0.9, f"{alone:.0%} of the buckets hold one gradient"
    assert sum(counts[k] for k in (2, 3, 4)) > 0.05 * len(sizes)


def test_syncea_is_one_bucket(probe: PlannerProbe) -> None:
    draw = random.Random(1)
    for _ in range(N_MODELS // 3):
        expect_plan(probe, "syncea", random_model(draw), planners.syncea, SET_COMPLETE)


def test_mgwfbp_on_measured_times(probe: PlannerProbe) -> None:
    draw = random.Random(2)
    sizes: list[int] = []
    for _ in range(N_MODELS):
        model, count = random_model(draw), draw.choice((1, 3, 16))

        def oracle(m: Model, phase: int, count: int = count) -> costs.Buckets:
            return measured_rule(m, phase, count, lambda: planners.mgwfbp_planned(m, phase))

        sizes += expect_plan(probe, "mgwfbp", model, oracle, unmeasured_count=count)
    expect_variety(sizes)


def test_omgs_on_measured_times(probe: PlannerProbe) -> None:
    draw = random.Random(3)
    sizes: list[int] = []
    for _ in range(N_MODELS):
        model, count = random_model(draw), draw.choice((1, 3, 16))

        def oracle(m: Model, phase: int, count: int = count) -> costs.Buckets:
            return measured_rule(m, phase, count, lambda: planners.omgs_planned(m, phase))

        sizes += expect_plan(probe, "omgs", model, oracle, unmeasured_count=count)
    expect_variety(sizes)


def test_fgbuff_on_measured_times(probe: PlannerProbe) -> None:
    draw = random.Random(4)
    sizes: list[int] = []
    for _ in range(N_MODELS):
        model, first, count = random_model(draw), draw.randint(1, 5), draw.choice((1, 3, 16))

        def oracle(m: Model, phase: int, first: int = first, count: int = count) -> costs.Buckets:
            return measured_rule(m, phase, count, lambda: planners.fgbuff_planned(m, phase, first))

        sizes += expect_plan(probe, "fgbuff", model, oracle, first_count=first, unmeasured_count=count)
    expect_variety(sizes)


def test_horovod_joins_what_is_ready_in_a_cycle(probe: PlannerProbe) -> None:
    draw = random.Random(8)
    sizes: list[int] = []
    for _ in range(N_MODELS):
        model = random_model(draw)
        most, cycle = draw.choice((0, 1, 100, 400, 1 << 27)), draw.choice((0.001, 0.016, 0.05, 0.3, 1.0))

        def oracle(m: Model, phase: int, most: int = most, cycle: float = cycle) -> costs.Buckets:
            return planners.horovod(m, phase, most, cycle)

        sizes += expect_plan(probe, "horovod", model, oracle, threshold_bytes=most, cycle_ms=cycle)
    expect_variety(sizes)


def large_model(draw: random.Random) -> Model:
    """Layers of usual sizes, so that decisions by published seconds and bytes go either way."""
    sizes = [draw.choice((64, 512, 2048, 36_864, 589_824, 2_359_296, draw.randrange(1, 5_000_000)))
             for _ in range(draw.randint(1, 24))]
    model = Model([dense(f"g{i}", size) for i, size in enumerate(sizes)])
    model.world = draw.choice((1, 2, 3, 8, 16, 24, 64, 90))
    for gradient in model.gradients:
        gradient.ready_us = draw.random()  # the rule must ignore it
    model.links = [Link(draw.random(), draw.random())]
    model.flags = draw.choice((0, MEASURED, MEASURED | GIVEN_BUCKETS))
    return model


def expect_published(probe: PlannerProbe, scheduler: str, draw: random.Random,
                     oracle: Callable[..., costs.Buckets], settings: Callable[[], dict[str, float | str]]) -> None:
    sizes: list[int] = []
    undecided = 0
    for _ in range(N_MODELS):
        model, values = large_model(draw), settings()

        def rule(m: Model, phase: int, values: dict[str, float | str] = values) -> costs.Buckets:
            return costs.given(m, phase) if costs.are_given(m) else oracle(m, phase, **values)

        try:
            sizes += expect_plan(probe, scheduler, model, rule, mode="published", **values)
        except Undecided:
            undecided += 1
    assert undecided < N_MODELS / 100, f"{undecided} models tell nothing"
    expect_variety(sizes)


def test_mgwfbp_with_published_lines(probe: PlannerProbe) -> None:
    draw = random.Random(5)
    expect_published(probe, "mgwfbp", draw, planners.mgwfbp_published,
                     lambda: {"network": draw.choice(("10GbE", "56GbIB")), "backward_s": 10 ** draw.uniform(-4, 0)})


def test_omgs_with_published_constants(probe: PlannerProbe) -> None:
    draw = random.Random(6)
    expect_published(probe, "omgs", draw, planners.omgs_published, lambda: {
        "backward_s": 10 ** draw.uniform(-2, 1),
        "selection_s": 10 ** draw.uniform(-11, -8),
        "density": 10 ** draw.uniform(-4, 0),
        "table": draw.choice(("release", "fork")),
    })


def test_the_probe_carries_what_it_is_given(probe: PlannerProbe) -> None:
    model = Model([dense("a", 25, ready_us=40.0), dense("b", 25, ready_us=10.0)], flags=MEASURED)
    model.links = [Link(5.0, 1.0)]
    assert probe.plan("syncea", model).exposed_us == 205.0
    model.gradients[0].candidates[0].combine = model.gradients[1].candidates[0].combine = GATHER
    model.world = 4
    assert probe.plan("syncea", model).exposed_us == 405.0
    model.links[0].beta_us_per_byte = float("nan")
    assert probe.plan("syncea", model).exposed_us == 5.0
    shown = [{"step": step, "step_us": 1000.0, "exposed_us": us} for step, us in ((5, 9.0), (10, 100.0), (15, 300.0))]
    assert probe.plan("mgwfbp", model, shown).decisions == [1, 0, 1]


def test_the_probe_refuses_by_name(probe: PlannerProbe) -> None:
    model = Model([dense("a", 25)])
    for scheduler, options, order, reason in (
        ("mgwfbp", {"mode": "guessed"}, [], "'mode' is none of its choices"),
        ("mgwfbp", {"speed": 3}, [], "'speed' was not declared"),
        ("unheard-of", {}, [], "unheard-of"),
        ("syncea", {}, [1], "entry 0 of the model's order is 1"),
    ):
        model.order = order
        with pytest.raises(Refused, match=reason):
            probe.plan(scheduler, model, **options)
    model.order = []
    model.colour = "red"  # type: ignore[attr-defined]
    with pytest.raises(Refused, match="'colour' is no part of a model"):
        probe.plan("syncea", model)
