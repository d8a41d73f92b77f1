"""The lines that rank 0 prints about a run: with its first set the methods and the moved bytes, and
at its end a warning if the run has averaged nothing."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def say(line: str) -> None:
    """Prints the line to stderr, where the runtime's own log goes."""
    print(f"penstock: {line}", file=sys.stderr, flush=True)


def of_first_set(run: dict[str, Any], made: dict[str, Any]) -> str:
    """The line about scheme, transport, ranks and bytes, from the reports of the run and of its
    first set."""
    scheme = run["scheme"]
    transport = scheme["transport"] or scheme["collective"]
    ranks = made["world"]
    line = f"{_methods(made)} over {transport}, {ranks} rank{'s' * (ranks != 1)}"
    planned = made["planned"]
    moved, dense = planned["moved_bytes_per_step"], planned["dense_moved_bytes_per_step"]
    if ranks == 1 or dense == 0:
        return line + "; alone, it sends nothing"
    about = "about " if planned["sizes_are_open"] else ""
    part = "as dense does" if moved == dense else f"dense {_text(dense)} ({_ratio(moved, dense)})"
    of = " of this module" if made["name"].startswith("fsdp") else ""
    return f"{line}; a step{of} sends {about}{_text(moved)} from each, {part}"


def of_nothing(ranks: int) -> str:
    """The warning for a run that ended without a set and without a sum."""
    return (
        f"warning: this run of {ranks} ranks averaged nothing: hvd.init() was called, and neither "
        "gradients nor tensors came; register the hook "
        "(model.register_comm_hook(hvd.PenstockState(...), hvd.ddp_hook)), or wrap the optimizer "
        "(hvd.DistributedOptimizer)"
    )


def _methods(made: dict[str, Any]) -> str:
    """The methods of the gradients, the largest share of bytes first: "topk + residual, dense"."""
    sizes: Counter[str] = Counter()
    for bucket in made["buckets"]:
        for item in bucket["items"]:
            memory = item["memory"]
            name = item["compressor"] if item["compressor"] != "none" else "dense"
            sizes[name if memory in ("none", "") else f"{name} + {memory}"] += item["bytes_before"]
    return ", ".join(name for name, _ in sizes.most_common()) or "dense"


def _text(size: float) -> str:
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size:.0f} bytes"


def _ratio(moved: float, dense: float) -> str:
    if moved <= 0:
        return "nothing"
    return f"1/{dense / moved:.3g}" if moved < dense else f"{moved / dense:.3g} times that"
