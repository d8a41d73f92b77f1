"""What the ranks agree on before the first gradient of an optimizer leaves: that they train the same
parameters, which the core compares, and which gradients are sparse."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from penstock.common.gradient_set import GradientSet
from penstock.common.process_sets import ProcessSet
from penstock.torch.checks import Named
from penstock.torch.functions import allgather_object

ADVICE = (
    "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before training, or say "
    "DistributedOptimizer(check_parameters=False) if they are meant to differ."
)


def compare_parameters(gradients: GradientSet, named: Named, check: bool) -> None:
    """Collective. Parameters that differ are what check_parameters of [runtime] says: a warning, or
    HorovodInternalError on every rank. Without `check` this rank says nothing of its own, and so
    must the others."""
    checksums = [(name, checksum(gradients, p)) for name, p in named] if check else []
    gradients.compare_parameters(checksums, ADVICE)


def sparse_everywhere(
    set_name: str, sparse: Mapping[str, int], process_set: ProcessSet
) -> dict[str, int]:
    """The sparse gradients of all ranks, by name, with their numbers of sparse dimensions;
    collective. sparse: those of this rank."""
    everywhere: dict[str, int] = {}
    for names in allgather_object(dict(sparse), f"penstock.sparse.{set_name}", process_set):
        everywhere.update(names)
    return everywhere


def checksum(gradients: GradientSet, tensor: torch.Tensor) -> int:
    """A number that other values would give by chance only."""
    plain = tensor.detach()
    if plain.is_sparse:
        plain = plain.coalesce().values()
    plain = plain.cpu().contiguous()
    return gradients.library.checksum(plain.data_ptr(), plain.numel() * plain.element_size())
