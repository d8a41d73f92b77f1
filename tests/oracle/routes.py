"""Routes on which each element has an owner: which rank sums and compresses it, and where the memory is.

A part is an owned range of a gradient. The simulated methods treat a part as a gradient. With P ranks:

    hierarchical   host h:   s_h = sum over its ranks of g_r
                   owners:   a method among hosts, of s_h;  result = sum of the sent values of all hosts / P
                   the memory is one per host and part, in units of the host's sum

    shard          ranks:    a method among ranks, as on `flat`, part by part;  s = sum over r of the values that rank r sent
                   owner:    a method of one rank, of s, with a memory of its own, in units of the sum
                   result  = values that the owner sends / P

Ownership is a pure function of the sizes, of the cuts that compressors allow, and of the number of owners. There are as
many owners as the smallest host has ranks on `hierarchical`, and as many as there are ranks on `shard`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from .method import Gradients, Item, Method, ascending_sum

SMALLEST_CUT = 1024  # elements that each owner of a cut gradient gets at least


@dataclass(frozen=True)
class Part:
    """Elements [first, first + item.numel) of a gradient, as an item, and their owner."""

    gradient: Item
    first: int
    item: Item
    owner: int

    def of(self, grads: Mapping[str, torch.Tensor]) -> torch.Tensor:
        flat = grads[self.gradient.name].reshape(-1)
        return flat[self.first : self.first + self.item.numel].reshape(self.item.shape)


def _cuts(item: Item, alignment: int, owners: int) -> list[int]:
    """The first element of each owner's range, and the end."""
    unit = math.lcm(alignment, item.cols) if len(item.shape) >= 2 else alignment
    if item.numel < owners * unit:
        unit = alignment
    units = -(-item.numel // unit)
    return [min(units * owner // owners * unit, item.numel) for owner in range(owners)] + [item.numel]


def _part(item: Item, first: int, numel: int, owner: int) -> Part:
    if numel == item.numel:
        return Part(item, 0, item, owner)
    whole_rows = len(item.shape) >= 2 and first % item.cols == 0 and numel % item.cols == 0
    shape = (numel // item.cols, item.cols) if whole_rows else (numel,)
    return Part(item, first, Item(f"{item.name}[{first}:{first + numel}]", item.index, shape, first), owner)


def parts(items: Sequence[Item], alignment: Callable[[Item], int], owners: int) -> list[Part]:
    """All parts of all gradients, in order of gradients and of elements."""
    load = [0] * owners
    found: dict[int, list[Part]] = {}
    for item in items:
        step = alignment(item)
        if step == 0 or item.numel < owners * max(step, SMALLEST_CUT):
            continue
        cuts = _cuts(item, step, owners)
        found[item.index] = [
            _part(item, begin, end - begin, owner) for owner, (begin, end) in enumerate(zip(cuts, cuts[1:])) if end > begin
        ]
        for part in found[item.index]:
            load[part.owner] += part.item.numel
    for item in sorted(items, key=lambda item: (-item.numel, item.index)):
        if item.index not in found:
            owner = load.index(min(load))
            found[item.index] = [Part(item, 0, item, owner)]
            load[owner] += item.numel
    return [part for item in items for part in found[item.index]]


MakeMethods = Callable[[list[Item], int], list[Method]]  # items, ranks -> one method, or one per bucket


class _Owned(Method):
    """Methods of the parts of gradients. `is_mean`: the methods return a mean over their ranks. Otherwise they return a
    final result, a vote."""

    def __init__(self, ranks: int, parts: Sequence[Part], is_mean: bool) -> None:
        super().__init__(list(dict.fromkeys(part.gradient for part in parts)), ranks)
        self.parts = list(parts)
        self.is_mean = is_mean

    def cut(self, grads: Mapping[str, torch.Tensor]) -> Gradients:
        return {part.item.name: part.of(grads) for part in self.parts}

    def joined(self, pieces: Mapping[str, torch.Tensor]) -> Gradients:
        whole: dict[str, list[torch.Tensor]] = {}
        for part in self.parts:
            whole.setdefault(part.gradient.name, []).append(pieces[part.item.name].reshape(-1))
        return {item.name: torch.cat(whole[item.name]).reshape(item.shape) for item in self.items}

    def sent(self, methods: Sequence[Method], step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        """The sum of the values sent for all `grads`, or the vote."""
        result: Gradients = {}
        for method in methods:
            result.update(method.step(step, grads))
        return {name: mean * len(grads) for name, mean in result.items()} if self.is_mean else result

    def divided(self, result: Gradients) -> Gradients:
        return {name: total / self.ranks for name, total in result.items()} if self.is_mean else result

    def kept_by(self, methods: Sequence[Method], member: int) -> Gradients:
        pieces = {part.item.name: torch.zeros(part.item.numel) for part in self.parts}
        for method in methods:
            pieces.update(method.kept(member))
        return {name: kept.reshape(-1) for name, kept in self.joined(pieces).items()}


class Hierarchical(_Owned):
    """Route `hierarchical`. `hosts[r]` is the host of rank r."""

    def __init__(self, hosts: Sequence[int], parts: Sequence[Part], make: MakeMethods, is_mean: bool = True) -> None:
        super().__init__(len(hosts), parts, is_mean)
        self.members = members_of(hosts)
        self.methods = make([replace(part.item, leg=1) for part in self.parts], len(self.members))

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        sums = [
            self.cut({item.name: ascending_sum([grads[r][item.name] for r in members]) for item in self.items})
            for members in self.members
        ]
        return self.divided(self.joined(self.sent(self.methods, step, sums)))

    def kept(self, rank: int) -> Gradients:
        """The kept values of a host's sum, for its first rank; other ranks keep nothing here."""
        for host, members in enumerate(self.members):
            if members[0] == rank:
                return self.kept_by(self.methods, host)
        return {}


class Shard(_Owned):
    """Route `shard`. `make_owned` makes the methods that owners use for sums."""

    def __init__(
        self, ranks: int, parts: Sequence[Part], make: MakeMethods, make_owned: MakeMethods, is_mean: bool = True
    ) -> None:
        super().__init__(ranks, parts, is_mean)
        pieces = [part.item for part in self.parts]
        self.methods = make(pieces, ranks)
        self.owned = make_owned([replace(piece, leg=1) for piece in pieces], 1)

    def step(self, step: int, grads: Sequence[Mapping[str, torch.Tensor]]) -> Gradients:
        sums = self.sent(self.methods, step, [self.cut(own) for own in grads])
        return self.divided(self.joined(self.sent(self.owned, step, [sums])))

    def kept(self, rank: int) -> Gradients:
        """The kept values of the rank's own gradient. For rank 0 also the values that all owners keep of sums."""
        kept = self.kept_by(self.methods, rank)
        if rank != 0:
            return kept
        return {name: kept[name] + of_sums for name, of_sums in self.kept_by(self.owned, 0).items()}


def members_of(hosts: Sequence[int]) -> list[list[int]]:
    """The ranks of each host."""
    return [[rank for rank, host in enumerate(hosts) if host == number] for number in sorted(set(hosts))]


def owners_on(route: str, hosts: Sequence[int]) -> int:
    """The number of owners."""
    return len(hosts) if route == "shard" else min(map(len, members_of(hosts)))
