"""The checks of DistributedOptimizer's arguments, with Horovod's conditions, warnings and
messages."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from penstock.common.process_sets import NOT_REGISTERED, ProcessSet, global_process_set
from penstock.torch.collectives.reductions import Adasum, Average, Sum
from penstock.torch.compression import check_compressor
from penstock.torch.world import size as world_size

Named = list[tuple[str, torch.Tensor]]


def name_parameters(groups: Sequence[dict], named_parameters: Iterable[Any] | None) -> Named:
    """The optimizer's parameters with names, in the order of `named_parameters`; without it in the
    order of the groups.

    Parameters in `named_parameters` that the optimizer does not own are left out. ValueError for
    entries that are no tuples, for duplicate names, and for parameters of the optimizer that have
    no name.
    """
    owned = {id(p): p for group in groups for p in group["params"]}
    if named_parameters is None:
        # These names are equal on every rank, and unique across groups.
        return [
            (f"allreduce.noname.{i}.{j}", p)
            for i, group in enumerate(groups)
            for j, p in enumerate(group["params"])
        ]
    named = list(named_parameters)
    if any(not isinstance(entry, tuple) for entry in named):
        raise ValueError(
            "named_parameters should be a sequence of tuples (name, parameter), usually produced "
            "by "
            "model.named_parameters()."
        )
    duplicates = _duplicates([name for name, _ in named])
    if duplicates:
        raise ValueError(
            "Parameter names in named_parameters must be unique. Found duplicates: "
            + ", ".join(duplicates)
        )
    unnamed = owned.keys() - {id(p) for _, p in named}
    if unnamed:
        raise ValueError(
            "named_parameters was specified, but one or more model parameters were not named. "
            "Python object ids: " + ", ".join(str(one) for one in sorted(unnamed))
        )
    seen = set()
    result: Named = []
    for name, parameter in named:
        if id(parameter) in owned and id(parameter) not in seen:
            seen.add(id(parameter))
            result.append((name, parameter))
    return result


def _duplicates(names: Sequence[str]) -> list[str]:
    seen = set()
    twice = {name for name in names if name in seen or seen.add(name)}  # type: ignore[func-returns-value]
    return sorted(twice)


def check_groups(num_groups: int, groups: Any) -> None:
    """Checks Horovod's grouping arguments. They have no other effect, because the scheduler decides
    which gradients travel together."""
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed.",
            DeprecationWarning,
            stacklevel=3,
        )
        if groups is None:
            groups = num_groups
    if groups is None:
        return
    if isinstance(groups, bool) or not (
        isinstance(groups, list) or (isinstance(groups, int) and groups > 0)
    ):
        raise ValueError("groups should be a positive integer or a list of list of torch.Tensor.")
    if isinstance(groups, int):
        return
    seen = set()
    for group in groups:
        if not isinstance(group, (list, tuple)) or not all(
            isinstance(p, torch.Tensor) for p in group
        ):
            raise ValueError("groups must consist of torch.Tensor.")
        for p in group:
            if id(p) in seen:
                raise ValueError("A parameter can only appear once in groups.")
            seen.add(id(p))


def check_arguments(
    compression: Any,
    backward_passes_per_step: int,
    op: int,
    gradient_predivide_factor: float,
    process_set: Any,
) -> None:
    """Makes the checks that need no parameters."""
    check_compressor(compression)
    check_passes(backward_passes_per_step)
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if not gradient_predivide_factor > 0:
        raise ValueError(
            f"gradient_predivide_factor is {gradient_predivide_factor}, expected a number above 0"
        )
    check_process_set(process_set)
    if op == Adasum and world_size() > 1:
        further = "" if process_set is global_process_set else ", with a process set neither"
        raise NotImplementedError(
            f"DistributedOptimizer(op=Adasum) is not there yet{further}; use Average or Sum"
        )
    if op not in (Average, Sum, Adasum):
        raise ValueError(f"op is {op!r}, expected Average or Sum for the gradients of an optimizer")


def check_process_set(process_set: Any) -> None:
    """ValueError unless `process_set` is a registered set. This rank may be outside the set."""
    if not isinstance(process_set, ProcessSet):
        raise ValueError(f"process_set is {process_set!r}, expected an hvd.ProcessSet")
    if process_set.process_set_id is None:
        raise ValueError(NOT_REGISTERED)


def check_passes(passes: int) -> None:
    """ValueError unless `passes` is a positive number."""
    if passes <= 0:
        raise ValueError("backward_passes_per_step must be > 0")


def has_momentum(groups: Sequence[dict]) -> bool:
    """True if the optimizer itself averages gradients over steps (momentum of SGD, first beta of
    Adam and similar optimizers)."""
    for group in groups:
        if float(group.get("momentum", 0) or 0) > 0:
            return True
        betas = group.get("betas")
        if betas and float(betas[0]) > 0:
            return True
    return False


def check_frozen(frozen: Named) -> None:
    """ValueError if a parameter that did not take part has a gradient now, because each rank would
    train its own value of it."""
    for name, parameter in frozen:
        if parameter.requires_grad and parameter.grad is not None:
            raise ValueError(
                f"parameter {name} did not require gradients when the DistributedOptimizer was "
                "made, so that its gradient is not averaged over ranks, and it has one now. Wrap "
                "the optimizer again, on every rank, after requires_grad was set: "
                "optimizer = hvd.DistributedOptimizer(optimizer, ...)"
            )
