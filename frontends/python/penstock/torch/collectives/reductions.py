"""The reductions of Horovod's interface: their numbers, and the choice of one from arguments."""

from __future__ import annotations

import warnings
from typing import Any

from penstock import _library as c

# Horovod's numbers.
Average = 0
Sum = 1
Adasum = 2
Min = 3
Max = 4
Product = 5

_REDUCTIONS = {
    Average: c.REDUCE_SUM,
    Sum: c.REDUCE_SUM,
    Min: c.REDUCE_MIN,
    Max: c.REDUCE_MAX,
    Product: c.REDUCE_PRODUCT,
}


def check_op(op: Any) -> int:
    """Returns `op`. ValueError if it is no reduction; NotImplementedError for Adasum."""
    if op == Adasum:
        raise NotImplementedError(
            "Adasum is not there yet, it follows in a later version; use Average or Sum"
        )
    if isinstance(op, bool) or op not in _REDUCTIONS:
        raise ValueError(f"op is {op!r}, expected Average, Sum, Min, Max or Product")
    return op


def resolve_op(op: int | None, average: bool | None) -> int:
    """The reduction that `op` or, in old scripts, `average` names."""
    if op is not None:
        if average is not None:
            raise ValueError(
                "The op parameter supersedes average. Please provide only one of them."
            )
        return check_op(op)
    if average is None:
        return Average
    warnings.warn(
        "Parameter `average` has been replaced with `op` and will be removed.",
        DeprecationWarning,
        stacklevel=3,
    )
    return Average if average else Sum


def reduction_fields(op: int, prescale_factor: float, postscale_factor: float) -> dict[str, Any]:
    """The fields of a reduction in the C interface's declaration."""
    return {
        "reduction": _REDUCTIONS[op],
        "average": int(op == Average),
        "prescale": float(prescale_factor),
        "postscale": float(postscale_factor),
    }
