"""The agreement of the ranks before the first gradient of an optimizer is sent: the core compares
their parameters, and they collect the names of sparse gradients. With check_parameters_every of
[runtime] the core compares the parameters again later."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from penstock.common.gradient_set import GradientSet
from penstock.common.process_sets import ProcessSet
from penstock.torch.functions import allgather_object
from penstock.torch.tensors import in_host_memory

ADVICE = (
    "Call hvd.broadcast_parameters(model.state_dict(), root_rank=0) before training, or say "
    "DistributedOptimizer(check_parameters=False) if they are meant to differ."
)

LATER_ADVICE = (
    "Equal ranks stay equal in training, so the script has changed parameters on some ranks only, "
    "or bits have changed in a message or in memory: start again from a checkpoint."
)


def compare_parameters(
    gradients: GradientSet,
    named: Iterable[tuple[str, torch.Tensor]],
    check: bool = True,
    advice: str = ADVICE,
) -> None:
    """Compares the parameters of the ranks. Collective. If they differ, check_parameters of
    [runtime] decides: a warning, or HorovodInternalError on every rank. Without `check` this rank
    contributes no checksums; then all ranks must do so. advice: the remedy, as a sentence."""
    checksums = [(name, checksum(gradients, p)) for name, p in named] if check else []
    gradients.compare_parameters(checksums, advice)


def compare_again_if_due(
    gradients: GradientSet, named: Iterable[tuple[str, torch.Tensor]], check: bool = True
) -> None:
    """Compares the parameters between two steps where check_parameters_every of [runtime] asks for
    it. Collective."""
    if gradients.comparison_due():
        compare_parameters(gradients, named, check, LATER_ADVICE)


def sparse_everywhere(
    set_name: str, sparse: Mapping[str, int], process_set: ProcessSet
) -> dict[str, int]:
    """The sparse gradients of all ranks, by name, with their numbers of sparse dimensions.
    Collective. sparse: the sparse gradients of this rank."""
    everywhere: dict[str, int] = {}
    for names in allgather_object(dict(sparse), f"penstock.sparse.{set_name}", process_set):
        everywhere.update(names)
    return everywhere


def checksum(gradients: GradientSet, tensor: torch.Tensor) -> int:
    """A checksum of the tensor's values: other values give an equal number only by chance."""
    plain = tensor.detach()
    if plain.is_sparse:
        plain = plain.coalesce().values()
    plain = in_host_memory(plain)
    return gradients.library.checksum(plain.data_ptr(), plain.numel() * plain.element_size())
