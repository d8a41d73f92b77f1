"""Means of float16: in each frontend a mean is right if it fits in float16, although four times
40000 does not fit, and small values have only the rounding of float16. The oracle is a
float64 mean, rounded once."""

from __future__ import annotations

from typing import Any, Callable

import torch
from ddp_support import join_torch
from support import equal, expect, run_checks
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch import PenstockState, ddp_hook

NONE = '[scheme]\ncompressor = "none"\n'
FP16 = '[scheme]\ncompressor = "fp16"\n'
BF16 = '[scheme]\ncompressor = "bf16"\n'
RESIDUAL = '[scheme]\ncompressor = "fp16"\nmemory = "residual"\n'


def begin() -> None:
    hvd.init()
    join_torch()


def given(rank: int) -> torch.Tensor:
    """A rank's values: large values, small values, and values that differ between ranks."""
    generator = torch.Generator().manual_seed(rank)
    own = torch.randn(60, generator=generator)
    return torch.cat([torch.tensor([40000.0, -65504.0, 1e-6, 6e-8]), own, 1000 * own])


def expected(dtype: torch.dtype = torch.float16) -> torch.Tensor:
    ranks = range(hvd.size())
    total = sum(given(rank).to(dtype).double() for rank in ranks)
    return (torch.as_tensor(total) / hvd.size()).to(dtype)


def check_named_averages_of_float16() -> None:
    mine = given(hvd.rank())
    equal(hvd.allreduce(mine.half(), name="halves"), expected())
    equal(hvd.allreduce(mine.bfloat16(), name="brains"), expected(torch.bfloat16))
    in_place = mine.half()
    hvd.allreduce_(in_place, name="in place")
    equal(in_place, expected())
    for got in hvd.grouped_allreduce([mine.half(), mine.half()], name="group"):
        equal(got, expected())
    cast = hvd.allreduce(mine, name="cast", compression=hvd.Compression.fp16)
    equal(cast, expected().float())
    cast = hvd.allreduce(mine, name="brain cast", compression=hvd.Compression.bf16)
    equal(cast, expected(torch.bfloat16).float())
    rows = mine.half().repeat(hvd.size(), 1)
    equal(hvd.reducescatter(rows, name="scattered"), expected().reshape(1, -1))


def check_sums_of_float16_stay_sums() -> None:
    total = hvd.allreduce(torch.tensor([40000.0, 1.5]).half(), op=hvd.Sum, name="sum")
    assert total[0].isinf() == (hvd.size() > 1) and total[1] == 1.5 * hvd.size(), total


def averaged_by_optimizer(values: torch.Tensor, parameter_dtype: Any, **options: Any) -> Any:
    """The optimizer's result for a gradient with these values."""
    parameter = torch.nn.Parameter(torch.zeros(values.numel(), dtype=parameter_dtype))
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=0.0), [("weight", parameter)], **options
    )
    (parameter * values.to(parameter_dtype)).sum().backward()
    optimizer.synchronize()
    assert parameter.grad is not None
    got = parameter.grad.clone()
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.close()
    return got


def check_optimizers() -> None:
    mine = given(hvd.rank())
    fp16 = hvd.Compression.fp16
    got = averaged_by_optimizer(mine, torch.float32, compression=fp16, scheme=NONE)
    equal(got, expected().float())
    equal(averaged_by_optimizer(mine, torch.float32, scheme=FP16), expected().float())
    bf16 = averaged_by_optimizer(mine, torch.float32, scheme=BF16)
    equal(bf16, expected(torch.bfloat16).float())
    brains = hvd.Compression.bf16
    got = averaged_by_optimizer(mine, torch.float32, compression=brains, scheme=NONE)
    equal(got, expected(torch.bfloat16).float())
    equal(averaged_by_optimizer(mine, torch.float16, scheme=NONE), expected())
    got = averaged_by_optimizer(mine, torch.float32, compression=fp16, scheme=FP16)
    equal(got, expected().float())


def check_optimizers_that_divide_before() -> None:
    factor = 2.0 * hvd.size()
    got = averaged_by_optimizer(
        torch.tensor([40000.0, 1e-6, 1.0]),
        torch.float32,
        compression=hvd.Compression.fp16,
        scheme=NONE,
        gradient_predivide_factor=factor,
    )
    torch.testing.assert_close(got[[0, 2]], torch.tensor([40000.0, 1.0]), rtol=1e-3, atol=0)
    # The user divides by the factor, before the values are rounded to float16.
    assert abs(got[1] - 1e-6) <= factor * 2**-25, got


def check_what_a_residual_keeps_comes_later() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    optimizer: Any = hvd.DistributedOptimizer(
        torch.optim.SGD([parameter], lr=0.0), [("weight", parameter)], scheme=RESIDUAL
    )
    total = torch.zeros(2)
    for step in range(2 * hvd.size() + 2):
        optimizer.zero_grad()
        values = torch.tensor([40000.0, 1e-6]) if step == 0 else torch.zeros(2)
        (parameter * values).sum().backward()
        optimizer.synchronize()
        assert parameter.grad is not None and parameter.grad.isfinite().all()
        total += parameter.grad
        with optimizer.skip_synchronize():
            optimizer.step()
    torch.testing.assert_close(total, torch.tensor([40000.0, 1e-6]), rtol=2e-2, atol=0)
    optimizer.close()


class Weighted(torch.nn.Module):
    def __init__(self, numel: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(numel))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return (self.weight * values).sum()


def averaged_by_ddp(scheme: str, hook: Callable[..., Any]) -> torch.Tensor:
    mine = given(hvd.rank())
    model = Weighted(mine.numel())
    ddp = DistributedDataParallel(model)
    state = PenstockState(scheme)
    ddp.register_comm_hook(state, hook)
    for _ in range(2):
        model.zero_grad()
        ddp(mine).backward()
    state.close()
    assert model.weight.grad is not None
    return model.weight.grad


def check_hooks_of_ddp() -> None:
    equal(averaged_by_ddp(FP16, ddp_hook), expected().float())
    for scheme in (NONE, FP16):
        got = averaged_by_ddp(scheme, default_hooks.fp16_compress_wrapper(ddp_hook))
        equal(got, expected().float())
    got = averaged_by_ddp(NONE, default_hooks.bf16_compress_wrapper(ddp_hook))
    equal(got, expected(torch.bfloat16).float())


def check_gradients_of_another_type_than_in_the_first_step_are_refused() -> None:
    mine = given(hvd.rank())
    state = PenstockState(NONE)
    model = Weighted(mine.numel())
    ddp = DistributedDataParallel(model)
    ddp.register_comm_hook(state, ddp_hook)
    ddp(mine).backward()
    again = DistributedDataParallel(model)
    again.register_comm_hook(state, default_hooks.fp16_compress_wrapper(ddp_hook))
    words = ("torch.float16", "expected torch.float32", "PenstockState(...)")
    with expect(ValueError, *words):
        again(mine).backward()
    state.close()


def check_gradients_of_a_type_that_nobody_adds_are_refused() -> None:
    def narrowed(state, bucket):  # type: ignore[no-untyped-def]  # torch reads annotations
        bucket.set_buffer(bucket.buffer().to(torch.float8_e5m2))
        return ddp_hook(state, bucket)

    with expect(ValueError, "torch.float8_e5m2", "expected float32", "fp16_compress_wrapper"):
        averaged_by_ddp(NONE, narrowed)


if __name__ == "__main__":
    begin()
    run_checks(globals())
