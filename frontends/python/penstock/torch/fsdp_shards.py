"""Which elements of FSDP2's flat buffer belong to which parameter.

The buffer has one part for each rank of the group. A part has that rank's shard of each parameter
that has a gradient, in the order of FSDP2's parameters. FSDP2 cuts a parameter between rows (or
between slices of the dimension that `shard_placement_fn` names) and pads the shards of dimension 0
with zero rows, so that all ranks have equally many elements. The padding belongs to no gradient.

A parameter that the step has not used is *absent*: FSDP2 leaves it out of the buffer.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass(frozen=True)
class Shard:
    """The gradient of one rank's shard of one parameter."""

    name: str
    shape: tuple[int, ...]  # without padding
    first: int  # its first element in the flat buffer
    owner: int  # the rank in the world that keeps this shard


class Layout:
    """The shards of a module: the gradients of its set, rank by rank. Empty shards are left out.

    ranks: the group's ranks in the world.
    groups: torch's FSDPParamGroup objects that asked for the reduction. None, if the program calls
    the reducer itself: each rank's part is then one vector. It is one vector, with a warning, also
    if the first buffer, of `n_elements`, is not what the parameters `in_buffer` fill (None: all
    that require gradients).
    """

    def __init__(
        self,
        groups: Collection[Any],
        ranks: Sequence[int],
        n_elements: int,
        in_buffer: list[Any] | None,
    ) -> None:
        self._groups, self._ranks = groups, ranks
        self.shards: list[Shard] = []
        if groups:
            try:
                if n_elements == self._room(in_buffer):
                    self._n_elements, self.shards = self._room(None), self._lying(None)
                why = (
                    f"FSDP2 reduces {n_elements} elements, which are not those of the parameters "
                    "that require gradients"
                )
            except AttributeError as error:
                why = f"this torch's FSDP2 keeps shapes elsewhere ({error})"
        self._has_shapes = bool(self.shards)
        if self._has_shapes:
            return
        if groups:
            _warn_of_vectors(why)
        self._n_elements, length = n_elements, n_elements // len(ranks)
        self.shards = [
            Shard(f"part of rank {rank}", (length,), place * length, rank)
            for place, rank in enumerate(ranks)
        ]

    def places(self, n_elements: int, in_buffer: list[Any] | None) -> list[int | None]:
        """For each shard its first element in a step's buffer of `n_elements`; None: it is absent.
        Empty if the shards do not fill such a buffer."""
        if n_elements == self._n_elements:
            return [one.first for one in self.shards]
        if not self._has_shapes or n_elements != self._room(in_buffer):
            return []
        here = {one.name: one.first for one in self._lying(in_buffer)}
        return [here.get(one.name) for one in self.shards]

    def _cuts(self, in_buffer: list[Any] | None) -> list[_Cut]:
        """Empty if several groups share the reducer."""
        if len(self._groups) != 1:
            return []
        (group,) = self._groups
        present = None if in_buffer is None else {id(one) for one in in_buffer}
        return [
            _Cut(_name(one, n), tuple(one._orig_size), one.fsdp_placement.dim, len(self._ranks))
            for n, one in enumerate(_requiring(group))
            if present is None or id(one) in present
        ]

    def _room(self, in_buffer: list[Any] | None) -> int:
        """The number of elements of a buffer of these parameters."""
        return len(self._ranks) * sum(cut.room() for cut in self._cuts(in_buffer))

    def _lying(self, in_buffer: list[Any] | None) -> list[Shard]:
        """The shards of these parameters, in a buffer that has no others."""
        cuts = self._cuts(in_buffer)
        shards, first = [], 0
        for place, rank in enumerate(self._ranks):
            for cut in cuts:
                shape = cut.shape(place)
                if math.prod(shape) > 0:
                    shards.append(Shard(f"{cut.name} of rank {rank}", shape, first, rank))
                first += cut.room()
        return shards


def _warn_of_vectors(why: str) -> None:
    warnings.warn(
        f"the gradients of a module have no shapes for Penstock, because {why}. Each rank's "
        "part travels as one vector, so methods for matrices (powersgd, acpsgd) leave it "
        "dense, and rules by name or by dims see the vector only. Freeze parameters without "
        "gradients (requires_grad_(False)) before the first backward",
        stacklevel=3,
    )


def parameters_in_buffer(caller: FrameType) -> list[Any] | None:
    """The FSDPParam objects whose gradients are in the buffer. FSDP2 does not hand them to the
    reducer, so they are read from the variables of its caller, torch's foreach_reduce. None: the
    caller is another function, or a torch that has another name for them."""
    return caller.f_locals.get("fsdp_params")


def requiring_gradients(groups: Collection[Any]) -> tuple[int, ...]:
    """Identifies the parameters of the groups that require gradients now."""
    return tuple(id(one) for group in groups for one in _requiring(group))


def _requiring(group: Any) -> list[Any]:
    return [one for one in group.fsdp_params if one.sharded_param.requires_grad]


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
