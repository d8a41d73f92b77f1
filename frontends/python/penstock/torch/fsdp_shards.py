"""Which elements of FSDP2's flat buffer belong to which parameter.

The buffer has one part for each rank of the group. A part has that rank's shard of each parameter
that has a gradient, in the order of FSDP2's parameters. FSDP2 cuts a parameter between rows (or
between slices of the dimension that `shard_placement_fn` names) and pads the shards of dimension 0
with zero rows, so that all ranks have equally many elements. The padding belongs to no gradient.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Shard:
    """The gradient of one rank's shard of one parameter."""

    name: str
    shape: tuple[int, ...]  # without padding
    first: int  # its first element in the flat buffer
    owner: int  # the rank in the world that keeps this shard


def shards_in(groups: Collection[Any], ranks: Sequence[int], n_elements: int) -> list[Shard]:
    """The shards in a flat buffer of `n_elements`, rank by rank. Empty shards are left out.

    ranks: the group's ranks in the world.
    groups: torch's FSDPParamGroup objects that asked for the reduction. None, if the program calls
    the reducer itself: each rank's part is then one vector. It is one vector, with a warning, also
    if the shards of the parameters that require gradients are not what the buffer has.
    """
    if groups:
        try:
            shards = _of_parameters(groups, ranks, n_elements)
        except AttributeError as error:
            shards, why = [], f"this torch's FSDP2 keeps shapes elsewhere ({error})"
        else:
            why = (
                f"FSDP2 reduces {n_elements} elements, which are not those of the parameters that "
                "require gradients; perhaps some of these got no gradient in the first backward"
            )
        if shards:
            return shards
        warnings.warn(
            f"the gradients of a module have no shapes for Penstock, because {why}. Each rank's "
            "part travels as one vector, so methods for matrices (powersgd, acpsgd) leave it "
            "dense, and rules by name or by dims see the vector only. Freeze parameters without "
            "gradients (requires_grad_(False)) before the first backward",
            stacklevel=2,
        )
    length = n_elements // len(ranks)
    return [
        Shard(f"part of rank {rank}", (length,), place * length, rank)
        for place, rank in enumerate(ranks)
    ]


def requiring_gradients(groups: Collection[Any]) -> tuple[int, ...]:
    """Identifies the parameters of the groups that require gradients now."""
    return tuple(id(one) for group in groups for one in _requiring(group))


def _requiring(group: Any) -> list[Any]:
    return [one for one in group.fsdp_params if one.sharded_param.requires_grad]


def _of_parameters(groups: Collection[Any], ranks: Sequence[int], n_elements: int) -> list[Shard]:
    """Empty if the parameters do not fill the buffer."""
    if len(groups) != 1:
        return []
    (group,) = groups
    cuts = [
        _Cut(_name(one, number), tuple(one._orig_size), one.fsdp_placement.dim, len(ranks))
        for number, one in enumerate(_requiring(group))
    ]
    if sum(cut.room() for cut in cuts) * len(ranks) != n_elements:
        return []
    shards, first = [], 0
    for place, rank in enumerate(ranks):
        for cut in cuts:
            shape = cut.shape(place)
            if math.prod(shape) > 0:
                shards.append(Shard(f"{cut.name} of rank {rank}", shape, first, rank))
            first += cut.room()
    return shards


def _name(parameter: Any, number: int) -> str:
    """The parameter's name in the model, which FSDP2 knows after the first forward."""
    return parameter._param_fqn or f"parameter {number}"


@dataclass(frozen=True)
class _Cut:
    """A parameter that is cut along one dimension into equal slices; the last ranks may get fewer
    slices, or none."""

    name: str
    size: tuple[int, ...]
    dim: int
    n_ranks: int

    def shape(self, place: int) -> tuple[int, ...]:
        """The shape of the shard of the rank at this place in the group."""
        each = -(-self.size[self.dim] // self.n_ranks)
        here = min(each, max(0, self.size[self.dim] - place * each))
        return (*self.size[: self.dim], here, *self.size[self.dim + 1 :])

    def room(self) -> int:
        """Elements of each rank's shard with its padding: as many as the first rank has."""
        return math.prod(self.shape(0))
