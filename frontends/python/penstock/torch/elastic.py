"""Horovod's elastic training. Not there yet: the names exist, so that a script can be read, and say
so when they are used."""

from __future__ import annotations

from typing import Any, NoReturn


def _not_yet(what: str) -> NoReturn:
    raise NotImplementedError(
        f"elastic.{what} is not there yet, it follows in a later version; start again from a "
        "checkpoint when hosts change"
    )


class TorchState:
    """Horovod's state of an elastic job. Raises NotImplementedError."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        _not_yet("TorchState")


class ElasticSampler:
    """Horovod's sampler for an elastic job. Raises NotImplementedError."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        _not_yet("ElasticSampler")


def run(function: Any) -> Any:
    """Horovod's decorator of a training function. Raises NotImplementedError."""
    _not_yet("run")
