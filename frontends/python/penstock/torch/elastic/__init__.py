"""Horovod's elastic training, which is not implemented yet. The names exist, so that a script can
be imported; their use raises NotImplementedError."""

from __future__ import annotations

from typing import Any

from penstock.torch.elastic import sampler, state
from penstock.torch.elastic.missing import not_yet
from penstock.torch.elastic.sampler import ElasticSampler
from penstock.torch.elastic.state import TorchState

__all__ = ["ElasticSampler", "TorchState", "run", "sampler", "state"]


def run(function: Any) -> Any:
    """Horovod's decorator of a training function. Raises NotImplementedError."""
    not_yet(
        "run",
        "call the training function itself, save checkpoints, and start again from the last "
        "checkpoint when hosts change: the state of compression can be loaded on another number of "
        "ranks",
    )
