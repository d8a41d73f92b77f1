"""Values of sparse payloads in narrow types: rounded to nearest even, cut at the largest finite number.

int8 has one scale for a payload, max |value| / 127. The rounding error stays in the memory of the sender.
"""

from __future__ import annotations

import torch

VALUE_TYPES = ("fp32", "fp16", "bf16", "int8")
_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def checked(value_type: str) -> str:
    if value_type not in VALUE_TYPES:
        raise ValueError(f"value_type is {value_type!r}, expected one of {', '.join(VALUE_TYPES)}")
    return value_type


def narrowed(values: torch.Tensor, value_type: str) -> torch.Tensor:
    """The values that the receiver decodes for finite float32 values."""
    if value_type == "fp32" or values.numel() == 0:
        return values.clone()
    if value_type != "int8":
        most = torch.finfo(_HALVES[value_type]).max
        return values.to(_HALVES[value_type]).to(torch.float32).clamp(-most, most)
    scale = values.abs().max() / 127.0
    return (values / scale).round() * scale if scale > 0 else torch.zeros_like(values)


def take(work: torch.Tensor, chosen: torch.Tensor, value_type: str) -> torch.Tensor:
    """The decoded values of work[chosen], which are subtracted from `work`."""
    sent = narrowed(work[chosen], value_type)
    work[chosen] -= sent
    return sent
