"""State of compression (residuals, factors, step index, plan) as a state dict: one tensor of bytes
per rank.

Residuals belong to their rank: save on every rank and restore each rank's own, and never broadcast
them.
"""

from __future__ import annotations

from typing import Any

import torch

from penstock.common.runtime import GradientSet

KEY = "penstock"


def save(gradients: GradientSet) -> dict[str, torch.Tensor]:
    """The state of a set on this rank. HorovodInternalError for a set that failed inside a step."""
    data = gradients.save()
    return {
        KEY: torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(0, dtype=torch.uint8)
    }


def load(gradients: GradientSet, state: dict[str, torch.Tensor]) -> None:
    """Restores what `save` gave. ValueError for anything else, HorovodInternalError for another
    rank's or model's."""
    data = state.get(KEY) if isinstance(state, dict) else None
    if not isinstance(data, torch.Tensor) or data.dtype != torch.uint8:
        raise ValueError(
            f"the state of compression is {_shape_of(data)}, expected a uint8 tensor under the key "
            f'"{KEY}"'
        )
    gradients.load(data.detach().cpu().contiguous().numpy().tobytes())


def _shape_of(data: Any) -> str:
    if isinstance(data, torch.Tensor):
        return f"a tensor of {data.dtype}"
    return "missing" if data is None else f"a {type(data).__name__}"


def state_dict(optimizer: Any) -> dict[str, torch.Tensor]:
    """``optimizer.compression_state_dict()`` of a DistributedOptimizer."""
    return optimizer.compression_state_dict()


def load_state_dict(optimizer: Any, state: dict[str, torch.Tensor]) -> None:
    """``optimizer.load_compression_state_dict(state)`` of a DistributedOptimizer."""
    optimizer.load_compression_state_dict(state)
