"""Batch normalisation over the joined batches of all ranks."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from penstock import _library as c
from penstock.torch import handles, world
from penstock.torch.collectives.allgather import received_rows
from penstock.torch.collectives.in_place import replacing
from penstock.torch.collectives.reductions import Sum, reduction_fields


class SyncBatchNorm(_BatchNorm):
    """BatchNorm1d, 2d or 3d that in training uses the statistics of the joined batches of all
    ranks.

    Ranks may have batches of different sizes; a batch may be empty. Arguments, parameters, buffers
    and state dict are those of torch.nn.BatchNorm. The input has shape (N, C, ...), on any device.
    In evaluation nothing is exchanged. All ranks must run their layers in one order. ValueError if
    all ranks together have one value per channel.
    """

    def _check_input_dim(self, input: torch.Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        self._check_input_dim(input)
        if input.shape[1] != self.num_features:
            raise ValueError(
                f"expected {self.num_features} channels in dimension 1, got {input.shape[1]}"
            )
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        from_batch = self.training or self.running_mean is None
        if from_batch and world.size() > 1:
            return self._normalize_together(input, momentum)
        # Running statistics, if they are kept, are updated in training only.
        kept = not self.training or self.track_running_stats
        return torch.nn.functional.batch_norm(
            input,
            self.running_mean if kept else None,
            self.running_var if kept else None,
            self.weight,
            self.bias,
            from_batch,
            momentum,
            self.eps,
        )

    def _normalize_together(self, input: torch.Tensor, momentum: float) -> torch.Tensor:
        normalized, mean, variance, count = _Normalize.apply(
            input, self.weight, self.bias, self.eps
        )
        if self.training and self.track_running_stats and self.running_mean is not None:
            with torch.no_grad():
                assert self.running_var is not None
                unbiased = variance * (count / (count - 1))
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), momentum)
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), momentum)
        return normalized


def _statistics_dtype(tensor: torch.Tensor) -> torch.dtype:
    return torch.float64 if tensor.dtype == torch.float64 else torch.float32


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Reshapes values of shape (C) so that they broadcast over (N, C, ...)."""
    return values.reshape(1, -1, *(1 for _ in range(like.dim() - 2)))


def _joint_statistics(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, float]:
    """Mean and biased variance per channel over all ranks, and the number of values per channel."""
    channels = values.shape[1]
    over = [0, *range(2, values.dim())]
    count = values.numel() // max(1, channels)
    mean = values.sum(over) / max(1, count)
    # Add squares of deviations from this rank's mean; sums of squared values would lose digits.
    squares = (values - _per_channel(mean, values)).square().sum(over)
    mine = torch.cat([mean.double(), squares.double(), mean.new_tensor([count]).double()])
    mine = mine.cpu().reshape(1, -1)
    request = handles.Request(c.ALL_GATHER, mine, received_rows(mine))
    everyone, _ = handles.synchronize(handles.start("sync_batch_norm.statistics", None, request))
    means, deviations = everyone[:, :channels], everyone[:, channels : 2 * channels]
    counts = everyone[:, 2 * channels :]
    total = float(counts.sum())
    joint = (means * counts).sum(0) / max(1.0, total)
    spread = deviations.sum(0) + ((means - joint).square() * counts).sum(0)
    variance = spread / max(1.0, total)
    return joint.to(values), variance.to(values), total


class _Normalize(torch.autograd.Function):
    """Returns (normalized, mean, biased variance, number of values per channel)."""

    @staticmethod
    def forward(ctx: Any, input: Any, weight: Any, bias: Any, eps: float) -> Any:
        values = input.detach().to(_statistics_dtype(input))
        mean, variance, total = _joint_statistics(values)
        if total == 1:
            raise ValueError(
                "Expected more than 1 value per channel when training, got one on all ranks "
                "together"
            )
        inverse = (variance + eps).rsqrt()
        normalized = (values - _per_channel(mean, values)) * _per_channel(inverse, values)
        result = normalized
        if weight is not None:
            result = result * _per_channel(weight.to(values), values)
        if bias is not None:
            result = result + _per_channel(bias.to(values), values)
        ctx.save_for_backward(normalized, inverse, weight)
        ctx.total, ctx.input_dtype = total, input.dtype
        ctx.has_bias = bias is not None
        ctx.mark_non_differentiable(mean, variance)
        return result.to(input.dtype), mean, variance, total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Any, *_: Any) -> Any:
        normalized, inverse, weight = ctx.saved_tensors
        grad = grad_output.to(normalized.dtype)
        over = [0, *range(2, grad.dim())]
        sums = torch.stack([grad.sum(over), (grad * normalized).sum(over)])
        # The sums of this rank alone, because the optimizer averages gradients of parameters.
        grad_bias, grad_weight = sums[0].clone(), sums[1].clone()
        grad_input = None
        if ctx.needs_input_grad[0]:
            fields = reduction_fields(Sum, 1.0, 1.0)
            request = replacing(c.ALL_REDUCE, sums, None, fields)
            joint = handles.synchronize(
                handles.start("sync_batch_norm.gradient", None, request)
            )
            mean_grad, mean_product = joint / max(1.0, ctx.total)
            centred = grad - _per_channel(mean_grad, grad)
            centred = centred - normalized * _per_channel(mean_product, grad)
            scale = inverse if weight is None else inverse * weight.to(inverse)
            grad_input = (centred * _per_channel(scale, grad)).to(ctx.input_dtype)
        if weight is None or not ctx.needs_input_grad[1]:
            grad_weight = None
        else:
            grad_weight = grad_weight.to(weight.dtype)
        return (
            grad_input,
            grad_weight,
            grad_bias if ctx.has_bias and ctx.needs_input_grad[2] else None,
            None,
        )
