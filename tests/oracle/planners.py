"""The schedulers' rules in plain loops, from the mathematics: after each merge all times are computed anew. Each
function returns the buckets of one phase. Times of a model are microseconds, published times are seconds. If a
decision depends on rounding, the published rules raise Undecided, because such a model tests nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from . import planner_costs as costs
from .planner_costs import Buckets, Groups
from .planner_probe import MEASURED, Model

Group = Sequence[int]  # of positions in order of readiness, or of gradients

# Relative error between two orders of a few additions, with a margin.
ROUNDING = 1e-10


class Undecided(Exception):
    """Two sides of a comparison are equal except for rounding."""


def less(a: float, b: float, scale: float, exact: bool) -> bool:
    """True if a < b. Both are sums of numbers up to `scale`."""
    if not exact and abs(a - b) <= ROUNDING * scale:
        raise Undecided
    return a < b


def syncea(model: Model, phase: int) -> Buckets:
    if costs.are_given(model):
        return costs.given(model, phase)
    part = costs.taking_part(model, phase)
    return [part] if part else []


# ---- MG-WFBP ----


def mgwfbp_groups(ready: Sequence[float], exchange: Callable[[Group], float], alpha: float, exact: bool) -> Groups:
    """Merges group i into the next group if the message of i would still run when the next group is ready, and if
    the message either would not have started by then, or the wait is shorter than alpha."""

    def merges(groups: Groups, i: int) -> bool:
        start = end = 0.0
        for group in groups[: i + 1]:  # the recursion of wait-free back-propagation, from the first message on
            start = max(end, ready[group[-1]])
            end = start + exchange(group)
        arrives = ready[groups[i + 1][-1]]
        scale = max(end, arrives, alpha)
        # start > arrives or arrives - start < alpha. If alpha is positive, the second condition contains the first.
        pays = less(arrives, start, scale, exact) if alpha == 0 else less(arrives, start + alpha, scale, exact)
        return pays and less(arrives, end, scale, exact)

    return costs.merge_in_turn(len(ready), merges)


def mgwfbp_planned(model: Model, phase: int) -> Buckets:
    part = costs.taking_part(model, phase)
    groups = mgwfbp_groups(
        costs.ready_times(model, part),
        lambda group: costs.exchange(model, [part[i] for i in group], phase),
        costs.startup(model),
        exact=True,
    )
    return costs.as_buckets(part, groups)


Line = tuple[float, float]  # start-up in seconds, seconds per byte

# The lines for 2 to 16 ranks are from the release, for 32 and 64 ranks from FGBuff, a fork of the release.
_MGWFBP_2_AND_4 = {2: (2.554691138304671e-06, 9.837548167872609e-11), 4: (4.204298980348825e-05, 2.0589360830118177e-10)}
MGWFBP_LINES: dict[str, dict[int, Line]] = {
    "10GbE": _MGWFBP_2_AND_4 | {
        8: (0.0005230272768511732, 8.570746975492128e-10), 16: (0.0009080981007148093, 7.395651186836712e-10),
        32: (0.0013476410788581382 * 3, 8.643300782166769e-10), 64: (0.0023476410788581382 * 3, 9.643300782166769e-10),
    },
    "56GbIB": _MGWFBP_2_AND_4 | {
        8: (9.75367204301171e-05, 3.0568230536676206e-10), 16: (0.00023583677659915685, 4.0594787739537565e-10),
        32: (0.00040632079996292579, 1.5 * 3.2713239529771973e-10), 64: (0.00080632079996292579, 1.8 * 3.2713239529771973e-10),
    },
}  # fmt: skip


def line_for(table: dict[int, Line], ranks: int) -> Line:
    """A row, a point between two rows, or the nearest row."""
    ranks = min(max(ranks, min(table)), max(table))
    low = max(r for r in table if r <= ranks)
    high = min(r for r in table if r >= ranks)
    if low == high:
        return table[low]
    weight = (high - ranks) / (high - low)
    return (weight * table[low][0] + (1 - weight) * table[high][0],
            weight * table[low][1] + (1 - weight) * table[high][1])


def mgwfbp_published(model: Model, phase: int, network: str, backward_s: float) -> Buckets:
    part = costs.taking_part(model, phase)
    alpha, beta = line_for(MGWFBP_LINES[network], model.world)
    groups = mgwfbp_groups(
        costs.ready_by_elements(model, part, backward_s),
        lambda group: alpha + beta * sum(costs.chosen(model, part[i]).phase_bytes[phase] for i in group),
        alpha,
        exact=False,
    )
    return costs.as_buckets(part, groups)


# ---- OMGS-SGD ----


def omgs_groups(ready: Sequence[float], selection: Callable[[Group], float], exchange: Callable[[Group], float],
                exact: bool, first_apart: bool = False) -> Groups:
    """Merges group i into the next group if its message then waits for less time than it saves. Backward of a group
    begins when the group before it is sparsified. With `first_apart` the first gradient stays a group of its own."""

    def backward(group: Group) -> float:
        return ready[group[-1]] - (ready[group[0] - 1] if group[0] > 0 else 0.0)

    def merges(groups: Groups, i: int) -> bool:
        if first_apart and i == 0:
            return False
        sparse = start = end = 0.0
        for group in groups[: i + 1]:
            sparse = sparse + backward(group) + selection(group)
            start = max(end, sparse)
            end = start + exchange(group)
        this, following = groups[i], groups[i + 1]
        both = this + following
        wait = backward(following) + selection(both) - selection(this) - selection(following) - (start - sparse)
        saved = exchange(this) + exchange(following) - exchange(both)
        return less(wait, saved, max(end, exchange(both), sparse + selection(both)), exact)

    return costs.merge_in_turn(len(ready), merges)


def omgs_planned(model: Model, phase: int) -> Buckets:
    part = costs.taking_part(model, phase)
    groups = omgs_groups(
        costs.ready_times(model, part),
        lambda group: costs.encode(model, [part[i] for i in group]),
        lambda group: costs.exchange(model, [part[i] for i in group], phase),
        exact=True,
    )
    return costs.as_buckets(part, groups)


OMGS_RELEASE: dict[int, Line] = {2: (1.6e-3, 1.0e-8), 4: (2.7e-3, 1.3e-8), 8: (4.0e-3, 1.5e-8), 16: (1.1e-2, 1.7e-8)}
OMGS_SMALL: dict[int, Line] = {2: (1.6e-3, 1.0e-8), 4: (2.7e-3, 1.3e-8), 8: (4.0e-3, 1.5e-8), 16: (1.7e-3, 1.7e-8)}
OMGS_LARGE: dict[int, Line] = {2: (4.4e-3, 5.8e-9), 4: (5.6e-3, 7.4e-9), 8: (7.68e-3, 8.2e-9), 16: (2.1e-3, 1.7e-8)}


def omgs_published(model: Model, phase: int, backward_s: float, selection_s: float, density: float, table: str) -> Buckets:
    """As in the released code: the first gradient counts as a group, and then travels with the second group."""
    part = costs.taking_part(model, phase)

    def elements(group: Group) -> int:
        return sum(model.gradients[part[i]].numel for i in group)

    def selection(group: Group) -> float:
        return selection_s * elements(group) * math.log2(max(elements(group), 1))

    def exchange(group: Group) -> float:
        received = 4 * density * elements(group) * model.world
        if table == "fork":
            less(received, 2**20, 2**20, exact=False)
        forks = OMGS_SMALL if received < 2**20 else OMGS_LARGE
        a, b = line_for(forks if table == "fork" else OMGS_RELEASE, model.world)
        return 2 * (a + b * received)

    groups = omgs_groups(costs.ready_by_elements(model, part, backward_s), selection, exchange, exact=False, first_apart=True)
    if len(groups) > 1:
        groups = [[*groups[0], *groups[1]], *groups[2:]]
    return costs.as_buckets(part, groups)


# ---- FGBuff ----


def fgbuff_planned(model: Model, phase: int, first_count: int) -> Buckets:
    """The first bucket is the shortest whose saved start-up times cover the wait for its last gradient. Each later
    bucket fills while the bucket before it is sent. When the link is busy beyond the end of backward, the
    remaining gradients travel together."""
    part = costs.taking_part(model, phase)
    ready = costs.ready_times(model, part)
    n = len(part)
    if n == 0:
        return []
    worth = [k for k in range(2, n) if (k - 1) * costs.startup(model) >= ready[k - 1]]
    groups = [list(range(min([*worth, first_count, n])))]
    while (begin := groups[-1][-1] + 1) < n:
        engine = link = 0.0
        for group in groups:
            members = [part[i] for i in group]
            engine = max(engine, ready[group[-1]]) + costs.encode(model, members)
            link = max(link, engine) + costs.exchange(model, members, phase)
        if link >= ready[-1]:
            groups.append(list(range(begin, n)))
            break
        on_its_way = costs.exchange(model, [part[i] for i in groups[-1]], phase)
        end = begin + 1
        while end < n:
            filling = ready[end] - ready[begin - 1] + costs.encode(model, part[begin : end + 1])
            if filling > on_its_way:
                break
            end += 1
        groups.append(list(range(begin, end)))
    return costs.as_buckets(part, groups)


# ---- Horovod ----


def horovod(model: Model, phase: int, threshold_bytes: int, cycle_ms: float) -> Buckets:
    """Gradients of one cycle whose payloads fit below the threshold. Without measurements there is one cycle."""
    if costs.are_given(model):
        return costs.given(model, phase)
    members = costs.taking_part(model, phase)
    cycles = [0.0] * len(members)
    if model.flags & MEASURED:
        cycles = [time // (cycle_ms * 1000) for time in costs.ready_times(model, members)]
    buckets: Buckets = []
    for cycle in sorted(set(cycles)):
        room = 0
        first = True
        for number, own in zip(members, cycles, strict=True):
            if own != cycle:
                continue
            size = costs.chosen(model, number).phase_bytes[phase]
            if first or threshold_bytes == 0 or size > room:
                buckets.append([])
                room = threshold_bytes
            first = False
            buckets[-1].append(number)
            room -= size
    return buckets
