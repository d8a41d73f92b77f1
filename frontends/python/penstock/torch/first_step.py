"""What the ranks agree on before the first gradient of an optimizer leaves: that they train the
same parameters, and which gradients are sparse.

One small message, once: a checksum of all parameters of each rank. Only when these differ, one of
each parameter follows, to name the first that differs.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import torch

from penstock.common.exceptions import MISMATCH, HorovodInternalError
from penstock.common.process_sets import ProcessSet
from penstock.torch.checks import Named
from penstock.torch.functions import allgather_object


def agree(
    set_name: str,
    named: Named,
    sparse: Mapping[str, int],
    check_parameters: bool,
    process_set: ProcessSet,
) -> dict[str, int]:
    """Compares parameters between the ranks and returns the sparse gradients of all of them, with
    their numbers of sparse dimensions. Collective.

    sparse: those of this rank. HorovodInternalError on every rank when parameters differ.
    """
    own = [checksum(p) for _, p in named] if check_parameters else []
    mine = (hash_of(own), dict(sparse))
    told = allgather_object(mine, f"penstock.first_step.{set_name}", process_set)
    if any(other != told[0][0] for other, _ in told):
        of_all = allgather_object(own, f"penstock.parameters.{set_name}", process_set)
        raise _difference(named, of_all, process_set)
    everywhere: dict[str, int] = {}
    for _, names in told:
        everywhere.update(names)
    return everywhere


def _difference(
    named: Named, of_all: Sequence[Sequence[int]], process_set: ProcessSet
) -> HorovodInternalError:
    first = of_all[0]
    if any(len(one) != len(first) for one in of_all):
        return HorovodInternalError(
            "check_parameters of DistributedOptimizer is not the same on every rank", MISMATCH
        )
    differ = [any(one[i] != first[i] for one in of_all) for i in range(len(first))]
    number = differ.index(True)
    members = process_set.ranks or []
    others = [members[i] for i, one in enumerate(of_all) if one[number] != first[number]]
    named_ranks = ", ".join(str(rank) for rank in others[:8])
    return HorovodInternalError(
        f"parameter {named[number][0]} differs between ranks at the first step: rank "
        f"{named_ranks}{' and others' if len(others) > 8 else ''} "
        f"do{'es' if len(others) == 1 else ''} not hold the values of rank {members[0]} "
        f"({sum(differ)} of {len(differ)} parameters differ). Call "
        "hvd.broadcast_parameters(model.state_dict(), root_rank=0) before training, or say "
        "DistributedOptimizer(check_parameters=False) if they are meant to differ.",
        MISMATCH,
    )


def checksum(tensor: torch.Tensor) -> int:
    """A number of 32 bits that other values would give by chance only."""
    plain = tensor.detach()
    if plain.is_sparse:
        plain = plain.coalesce().values()
    plain = plain.cpu().contiguous().reshape(-1)
    return zlib.crc32(plain.view(torch.uint8).numpy()) if plain.numel() else 0


def hash_of(checksums: Sequence[int]) -> int:
    """One number for all parameters, order included."""
    return zlib.crc32(b"".join(one.to_bytes(4, "little") for one in checksums))
