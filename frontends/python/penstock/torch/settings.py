"""What a DistributedOptimizer was asked for, as its exchange of gradients needs it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from penstock import _library as c
from penstock.common.process_sets import ProcessSet
from penstock.torch.checks import has_momentum
from penstock.torch.mpi_ops import Sum


@dataclass(frozen=True)
class Settings:
    """The arguments of DistributedOptimizer, checked."""

    compression: Any
    passes: int  # backward passes per step
    op: int  # Average or Sum
    predivide: float
    sparse_as_dense: bool
    process_set: ProcessSet
    scheme: str  # TOML text; empty: the configuration's
    check_parameters: bool

    def flags(self, groups: Sequence[dict[str, Any]]) -> int:
        """What the core is told about the optimizer of these parameter groups."""
        flags = c.SET_TELLS_OUTCOME | c.SET_DEFERRED_UPDATE
        flags |= c.SET_OPTIMIZER_MOMENTUM if has_momentum(groups) else 0
        flags |= c.SET_SUM if self.op == Sum else 0
        return flags


def scheme_text(scheme: str | None) -> str:
    """The TOML text of a scheme argument: text as it is, or the contents of a file that ends in
    .toml."""
    if scheme is None:
        return ""
    if "\n" not in scheme and scheme.endswith(".toml"):
        with open(scheme, encoding="utf-8") as file:
            return file.read()
    return scheme
