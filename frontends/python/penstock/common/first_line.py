"""The lines that rank 0 prints about a run: with its first set the methods and the moved bytes, and
at its end a warning if the run has averaged nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

_UNITS = ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"))


def say(line: str) -> None:
    """Prints the line to stderr, where the runtime's own log goes."""
    print(f"penstock: {line}", file=sys.stderr, flush=True)


def of_first_set(run: dict[str, Any], made: dict[str, Any]) -> str:
    """The line about scheme, transport, ranks and bytes, from the reports of the run and of its
    first set."""
    of = " of this module" if made["name"].startswith("fsdp") else ""
    return _line(run, [made], f"a step{of}")


def of_first_round(run: dict[str, Any], made: Sequence[dict[str, Any]], steps: int) -> str:
    """The same line for ranks that train apart: the sets exchange once in `steps` steps."""
    return _line(run, made, f"a round of {steps} step{'s' * (steps != 1)}")


def _line(run: dict[str, Any], made: Sequence[dict[str, Any]], what: str) -> str:
    scheme = run["scheme"]
    transport = scheme["transport"] or scheme["collective"]
    ranks = made[0]["world"]
    line = f"{_methods(made)} over {transport}, {ranks} rank{'s' * (ranks != 1)}"
    planned = [one["planned"] for one in made]
    moved = sum(one["moved_bytes_per_step"] for one in planned)
    dense = sum(one["dense_moved_bytes_per_step"] for one in planned)
    if ranks == 1 or dense == 0:
        return line + "; alone, it sends nothing"
    about = "about " if any(one["sizes_are_open"] for one in planned) else ""
    part = "as dense does" if moved == dense else f"dense {_text(dense)} ({_ratio(moved, dense)})"
    line += f"; {what} sends {about}{_text(moved)} from each, {part}"
    return f"{line}. {_nothing_compressed(made)}".removesuffix(". ")


def _nothing_compressed(made: Sequence[dict[str, Any]]) -> str:
    """A sentence if the scheme has a compressor, and yet all gradients travel as they are."""
    items = [(one, item) for one in made for bucket in one["buckets"] for item in bucket["items"]]
    n_gradients = len({(one["name"], item["gradient"]) for one, item in items})
    compressor = made[0]["compressor"]
    rules = {rule["number"]: rule["match"] for one in made for rule in one["rules"]}
    if compressor == "none" or any(item["bytes_after"] < item["bytes_before"] for _, item in items):
        return ""
    if rules and all(item["compressor"] == "none" for _, item in items):
        which = " and ".join(f"rule {number} {match}" for number, match in sorted(rules.items()))
        take = "takes" if len(rules) == 1 else "take"
        return f"No gradient is compressed: {which} {take} all {n_gradients} from {compressor}"
    return f"No gradient is compressed: {compressor} sends all {n_gradients} as they are"


def of_nothing(ranks: int) -> str:
    """The warning for a run that ended without a set and without a sum."""
    return (
        f"warning: this run of {ranks} ranks averaged nothing: hvd.init() was called, and neither "
        "gradients nor tensors to average came; register the hook "
        "(model.register_comm_hook(hvd.PenstockState(...), hvd.ddp_hook)), or wrap the optimizer "
        "(hvd.DistributedOptimizer, hvd.LocalSteps)"
    )


def _methods(made: Sequence[dict[str, Any]]) -> str:
    """The methods of the gradients, the largest share of bytes first: "topk + residual, dense"."""
    sizes: Counter[str] = Counter()
    for bucket in (bucket for one in made for bucket in one["buckets"]):
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
