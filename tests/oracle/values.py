"""Values of sparse payloads in narrow types: rounded to nearest even, cut at the largest finite number.

For one payload int8 has a scale, max |value| / 127, and fp16 has a power of two: with it the largest magnitude lies from
2^14 to 2^15. Values that are summed on the way have no scale. The rounding error stays in the memory of the sender.
sign sends the mean of all values of a sign for each of them.
"""

from __future__ import annotations

import math

import torch

VALUE_TYPES = ("auto", "fp32", "fp16", "bf16", "int8", "sign")
FEWEST_NARROW = 8
_HALVES = {"fp16": torch.float16, "bf16": torch.bfloat16}


def checked(value_type: str) -> str:
    if value_type not in VALUE_TYPES:
        raise ValueError(f"value_type is {value_type!r}, expected one of {', '.join(VALUE_TYPES)}")
    return value_type


def resolved(value_type: str, most: int, numel: int, keeps: bool = True) -> str:
    """The type that "auto" means for a gradient that sends at most `most` of its entries."""
    if value_type != "auto":
        return value_type
    return "fp16" if keeps and FEWEST_NARROW <= most < numel else "fp32"


def power_for_halves(values: torch.Tensor) -> float:
    """The power of two that the codes of these values are multiplied by."""
    largest = float(values.abs().max())
    exponent = math.frexp(largest)[1] - 1 if largest > 0 else -126
    return 2.0 ** min(112, max(-126, exponent - 14))


def means_of_signs(values: torch.Tensor) -> torch.Tensor:
    """For each value the mean of all values of its sign, 0 for a zero. These means minimise the squared error."""
    sent = torch.zeros_like(values)
    for chosen in (values > 0, values < 0):
        if bool(chosen.any()):
            sent[chosen] = values[chosen].double().mean().float()
    return sent


def narrowed(values: torch.Tensor, value_type: str, summed: bool = False) -> torch.Tensor:
    """The values that the receiver decodes for finite float32 values. `summed`: they are summed on the way, without a scale."""
    if value_type == "fp32" or values.numel() == 0:
        return values.clone()
    if value_type == "sign":
        return means_of_signs(values)
    if value_type != "int8":
        most = torch.finfo(_HALVES[value_type]).max
        scale = power_for_halves(values) if value_type == "fp16" and not summed else 1.0
        codes = (values.double() / scale).float()
        return codes.to(_HALVES[value_type]).to(torch.float32).clamp(-most, most) * scale
    scale = values.abs().max() / 127.0
    return (values / scale).round() * scale if scale > 0 else torch.zeros_like(values)


def take(work: torch.Tensor, chosen: torch.Tensor, value_type: str, summed: bool = False) -> torch.Tensor:
    """The decoded values of work[chosen], which are subtracted from `work`."""
    sent = narrowed(work[chosen], value_type, summed)
    work[chosen] -= sent
    return sent
