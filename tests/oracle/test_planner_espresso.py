"""The exposed time of strategies, by route and leg. Espresso must compute equal times, and its plan is never slower than one way for all."""

from __future__ import annotations

import dataclasses
import random
import re

from . import planner_costs as costs
from .planner_machine import Bucket, run_backward
from .planner_probe import FLAT, GATHER, HIERARCHICAL, MEASURED, SHARD, SUM, Candidate, Gradient, Link, Model, PlannerProbe

WORLD, LOCAL, CROSS = 1, 2, 3  # PENSTOCK_LEVEL_*
NAMES = ("topk", "none", "fp16")


@dataclasses.dataclass
class Group:
    """Gradients that travel together, the candidate of each, and the route."""

    gradients: list[int]
    choices: list[int]
    route: int


def on_level(model: Model, level: int, amount: float) -> float:
    """The time of a message that moves as many bytes as an all-reduce of `amount` bytes."""
    (link,) = [link for link in model.links if link.level == level]
    return link.alpha_us + link.beta_us_per_byte * amount


def travels(model: Model, group: Group) -> float:
    candidates = costs.candidates_of(model, group.gradients, group.choices)
    summed = float(sum(c.phase_bytes[0] for c in candidates if c.combine == SUM))
    gathered = float(sum(c.phase_bytes[0] for c in candidates if c.combine == GATHER))
    if group.route == FLAT:
        return costs.exchange(model, group.gradients, 0, group.choices)
    if group.route == SHARD:  # all-to-all of every part, then the part of each owner to all ranks
        owned = (summed + gathered) / model.world
        return on_level(model, WORLD, (summed + gathered) / 2) + on_level(model, WORLD, owned * max(1.0, model.world / 2))
    local = model.ranks_per_host
    whole = float(sum(model.gradients[g].bytes for g in group.gradients))
    time = on_level(model, LOCAL, whole / 2) + on_level(model, LOCAL, whole / local * max(1.0, local / 2))
    if summed:
        time += on_level(model, CROSS, summed / local)
    if gathered:
        time += on_level(model, CROSS, gathered / local * max(1.0, model.hosts / 2))
    return time


def works(model: Model, group: Group) -> tuple[float, float]:
    """Encode and decode times of one rank, as shares of its times on route flat. There it encodes all its gradients, and decodes
    gathered payloads of every rank, or one summed payload."""
    encode, decode = (f(model, group.gradients, group.choices) for f in (costs.encode, costs.decode))
    gathers = any(c.combine == GATHER and c.phase_bytes[0] for c in costs.candidates_of(model, group.gradients, group.choices))
    if group.route == HIERARCHICAL:
        payloads = model.hosts / model.world if gathers else 1.0
        return encode / model.ranks_per_host, decode * payloads / model.ranks_per_host
    if group.route == SHARD:  # the payloads of all ranks for its part, then a payload of each owner
        payloads = 2.0 / model.world if gathers else 2.0
        return encode * (1 + 1 / model.world), decode * payloads
    return encode, decode


def exposed(model: Model, groups: list[Group]) -> float:
    machine = []
    for group in groups:
        encode, decode = works(model, group)
        ready = max(costs.usable(model.gradients[g].ready_us) for g in group.gradients)
        machine.append(Bucket(ready, encode, travels(model, group), decode, 0.0))
    return max(model.backward_us, run_backward(machine, decodes=True)) - model.backward_us


def random_world(source: random.Random) -> Model:
    hosts, local = source.choice(((4, 1), (8, 4), (2, 2), (16, 1), (16, 8)))
    slow = 10 ** source.uniform(-4, -1)
    links = [Link(source.choice((5.0, 50.0)), slow * local)]
    if local > 1:
        links += [Link(2.0, slow / 50, LOCAL), Link(source.choice((5.0, 50.0)), slow * local, CROSS)]
    gradients, ready = [], 0.0
    lines = {name: (5.0, 10 ** source.uniform(-5, -2), 5.0, 10 ** source.uniform(-6, -3)) for name in NAMES}
    for number in range(source.randint(1, 12)):
        numel = int(10 ** source.uniform(2, 6.3))
        ready += source.choice((0.0, 100.0, 1000.0))
        sent = {"topk": max(8, numel // 50), "none": 4 * numel, "fp16": 2 * numel}
        gradients.append(Gradient(
            f"g{number}", [numel], 4 * numel,
            [Candidate([sent[name]], name, *lines[name], combine=GATHER if name == "topk" else SUM) for name in NAMES], ready,
        ))  # fmt: skip
    return Model(gradients, list(range(len(gradients))), links, backward_us=ready, world=hosts * local, hosts=hosts, ranks_per_host=local, flags=MEASURED)


def units(model: Model, small: int) -> list[list[int]]:
    """Large gradients alone. Small gradients are joined until they are large enough; a joined unit has the place of its last gradient."""
    found: list[list[int]] = []
    waiting: list[int] = []
    for g in costs.order_of(model):
        if model.gradients[g].numel >= small:
            found.append([g])
            continue
        waiting.append(g)
        if sum(model.gradients[w].numel for w in waiting) >= small:
            found.append(waiting)
            waiting = []
    return found + [waiting] * bool(waiting)


def test_its_forecast_is_the_machines_and_one_way_for_all_is_never_shorter(probe: PlannerProbe) -> None:
    source = random.Random(41)
    mixed = routes = 0
    for _ in range(400):
        model = random_world(source)
        small = source.choice((0, 1000, 16384))
        plan = probe.plan("espresso", model, small_elements=small)
        groups = [Group(b.gradients, b.choices, b.route) for b in plan.of_phase()]
        assert [group.gradients for group in groups] == units(model, small)
        found = exposed(model, groups)
        said, dense = re.search(r"forecast (\S+) us exposed after backward, all dense (\S+),", plan.explanation[0]).groups()
        assert abs(float(said) - found) <= 1e-4 * (1 + found), (said, found)
        in_world = [FLAT, SHARD] + [HIERARCHICAL] * (model.ranks_per_host > 1)
        ways = {}
        for route in in_world:
            for choice in range(3):
                small_ones = [choice if choice == 1 or model.gradients[u[0]].numel >= small else 1 for u in units(model, small)]
                ways[choice, route] = exposed(model, [
                    Group(u, [c] * len(u), route) for u, c in zip(units(model, small), small_ones, strict=True)
                ])  # fmt: skip
        least_dense = min(ways[1, route] for route in in_world)
        assert abs(float(dense) - least_dense) <= 1e-4 * (1 + least_dense)
        # If large gradients have a compressor, small gradients keep the best dense route, which may be another route.
        assert found <= least_dense * (1 + 1e-9)
        if small == 0:
            assert found <= min(ways.values()) * (1 + 1e-6) + 1e-6
        mixed += len({(c, group.route) for group in groups for c in group.choices}) > 1
        routes += any(group.route != FLAT for group in groups)
    assert mixed > 60 and routes > 60
