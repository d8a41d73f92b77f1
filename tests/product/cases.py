"""The product of methods: every built compressor with every value of its choices, as schemes for small gradients.

The choices come from the plugins themselves, so a new plugin, or a new type of values, is a new case at once.
Gradients are drawn with NumPy, so that ranks need no torch.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

PENSTOCK = Path(__file__).resolve().parents[2] / "build/release/bin/penstock"
STEPS = 3  # two phases of acpsgd, and values that a memory has kept

# Nothing, one element and odd sizes; payloads with more than 32 indices, which travel coded, and with fewer, which do not.
SHAPES = {
    "matrix": (40, 33),
    "line": (1031,),
    "kernel": (8, 3, 5, 5),
    "one": (1,),
    "nothing": (0,),
    "seven": (7,),
    "wide": (3, 1367),
}


@dataclass(frozen=True)
class Case:
    """A method with its options. The transport is a choice of the run."""

    name: str
    compressor: str
    memory: str
    options: Mapping[str, Any] = field(default_factory=dict)  # of the compressor
    of_memory: Mapping[str, Any] = field(default_factory=dict)
    is_composite: bool = False  # ok-topk over the transport

    def table(self, transport: str) -> dict[str, Any]:
        """The scheme, for the runtime and for the oracle."""
        carriers = {"collective": "oktopk", "transport": transport} if self.is_composite else {"collective": transport}
        scheme = {"compressor": self.compressor, "memory": self.memory, **carriers}
        table = {"scheme": scheme, "compressor": {self.compressor: dict(self.options)}}
        return table | ({"memory": {self.memory: dict(self.of_memory)}} if self.of_memory else {})


def drawn(step: int, rank: int) -> dict[str, np.ndarray]:
    """float32 gradients of a rank, heavy-tailed, so that selections have large entries to choose."""
    random = np.random.default_rng([step, rank])
    tails = {name: random.standard_normal(shape) * np.exp(random.standard_normal(shape)) for name, shape in SHAPES.items()}
    return {name: tail.astype(np.float32) for name, tail in tails.items()}


# The memory of a compressor if it is not a plain residual, and options that suit gradients of a thousand entries.
MEMORIES = {
    "none": "none", "fp16": "none", "bf16": "none", "qsgd": "none", "natural": "none", "terngrad": "none",
    "signsgd": "none", "signum": "momentum", "dgc": "dgc",
}  # fmt: skip
_SPARSE = {"density": 0.05}
OPTIONS: dict[str, dict[str, Any]] = {
    **{name: _SPARSE for name in ("topk", "dgc", "gaussiank", "sidco", "adtopk", "adaq", "randomk", "redsync")},
    "threshold": {"threshold": 2.5},
    "chunktopk": {"density": 0.2, "chunk": 5},
    "arctopk": {"density": 0.1, "rank": 2},
    "sketch": {"density": 0.02, "rows": 3, "columns_per_entry": 5.0},
    "tbq": {"threshold": 0.5},
    "powersgd": {"rank": 2},
    "acpsgd": {"rank": 2},
    "powersgd-alternating": {"rank": 2},
}

# Codings that are not choices, and memories that are not those of a file.
MORE = (
    Case("qsgd of 2 bits", "qsgd", "none", {"bits": 2}),
    Case("qsgd of 8 bits", "qsgd", "none", {"bits": 8}),
    Case("qsgd with diana", "qsgd", "diana", {"bits": 4}),
    Case("maxmin of 1 bit", "maxmin", "residual", {"bits": 1}),
    Case("maxmin of 8 bits", "maxmin", "residual", {"bits": 8}),
    Case("onebit in buckets", "onebit", "residual", {"bucket": 64}),
    Case("topk with ef21", "topk", "ef21", _SPARSE, {"zeta": 0.5}),
    # Sums on the way are exact, so ok-topk takes float32 alone.
    Case("ok-topk", "topk", "residual", _SPARSE, is_composite=True),
    Case("ok-topk in fp32", "topk", "residual", {**_SPARSE, "value_type": "fp32"}, is_composite=True),
)


def _plugins(*question: str) -> Any:
    """The answer of `penstock plugins`."""
    answer = subprocess.run([PENSTOCK, "plugins", *question, "--json"], capture_output=True, text=True, check=True)
    return json.loads(answer.stdout)


def _of_plugin(name: str) -> Iterator[Case]:
    (plugin,) = _plugins("describe", f"compressor/{name}")
    memory, options = MEMORIES.get(name, "residual"), OPTIONS.get(name, {})
    yield Case(name, name, memory, options)
    for option in plugin["options"]:
        values = option["choices"] or ([False, True] if option["type"] == "bool" else [])
        for value in values:
            if value != option["default"]:
                yield Case(f"{name}, {option['name']} = {value}", name, memory, {**options, option["name"]: value})


def every_case() -> list[Case]:
    """The whole product, in an order that is equal in every process."""
    names = sorted({plugin["name"] for plugin in _plugins("list") if plugin["kind"] == "compressor"})
    return [case for name in names for case in _of_plugin(name)] + list(MORE)
