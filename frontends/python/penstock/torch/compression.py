"""Compression of gradients in the frontend, as in Horovod: stateless classes with compress and
decompress.

The configuration, not this module, chooses the schemes of the runtime (top-k, Power-SGD and so on).
Both may be combined.
"""

from __future__ import annotations

from typing import Any

import torch


class Compressor:
    """The interface of a user's own class: two static methods. The shape of the compressed tensor
    must depend only on the input's shape."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        """Returns the tensor to exchange and a context for `decompress`."""
        raise NotImplementedError

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        """Returns the exchanged tensor in the shape of the original tensor."""
        raise NotImplementedError


class NoneCompressor(Compressor):
    """Exchanges tensors unchanged."""

    @staticmethod
    def compress(tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        return tensor, None

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor


class _NarrowCompressor(Compressor):
    """Exchanges floating-point tensors in a type of 16 bits."""

    dtype: torch.dtype

    @classmethod
    def compress(cls, tensor: torch.Tensor) -> tuple[torch.Tensor, Any]:
        if tensor.dtype.is_floating_point:
            return tensor.to(cls.dtype), tensor.dtype
        return tensor, tensor.dtype

    @staticmethod
    def decompress(tensor: torch.Tensor, ctx: Any) -> torch.Tensor:
        return tensor.to(ctx)


class FP16Compressor(_NarrowCompressor):
    """Exchanges floating-point tensors as float16."""

    dtype = torch.float16


class BF16Compressor(_NarrowCompressor):
    """Exchanges floating-point tensors as bfloat16, which has the range of float32. Horovod has no
    such class."""

    dtype = torch.bfloat16


class Compression:
    """The compressors for ``allreduce``, ``reducescatter``, their grouped forms and
    ``DistributedOptimizer``. Values are rounded to nearest and travel in the narrow type. The
    transport adds them in float32, divides for an average, and rounds once."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor


def check_compressor(compression: Any) -> None:
    """Raises ValueError unless `compression` has the two methods."""
    if not callable(getattr(compression, "compress", None)) or not callable(
        getattr(compression, "decompress", None)
    ):
        raise ValueError(
            f"compression is {compression!r}, expected Compression.none, Compression.fp16, "
            "Compression.bf16 or a class with static methods "
            f"compress and decompress; schemes like top-k are named in the configuration"
        )
