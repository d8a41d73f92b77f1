"""Tensors whose memory does not hold their values as they are, or not of the type, the shape or the
place that the core knows: the smallest cases, each through the door where it went wrong."""

from __future__ import annotations

from typing import Any, Callable

import torch
import torch.distributed as dist
from ddp_support import RANK, SIZE, join_torch
from every_kind import ALL, NONE
from support import equal, expect, needs_torch, run_checks
from torch.nn.parallel import DistributedDataParallel

import penstock.torch as hvd
from penstock.torch.fsdp import PenstockReduceScatter

MEAN = sum(range(1, SIZE + 1)) / SIZE


def begin() -> None:
    join_torch()
    hvd.init()


def own() -> torch.Tensor:
    """Six numbers of this rank; their mean over the ranks is MEAN times those of rank 0."""
    return torch.arange(1.0, 7.0) * (RANK + 1)


def lazily_negated(values: torch.Tensor) -> torch.Tensor:
    return torch._neg_view(-values)


def averaged(parameter: torch.Tensor, *gradients: torch.Tensor, **options: Any) -> torch.Tensor:
    """The last gradient that a DistributedOptimizer gives back."""
    sgd = torch.optim.SGD([parameter], lr=0.0)
    optimizer = hvd.DistributedOptimizer(sgd, [("one", parameter)], **options)
    try:
        for gradient in gradients:
            parameter.grad = gradient
            optimizer.step()
        return parameter.grad
    finally:
        optimizer.close()


# ---- gradients ----


@needs_torch((2, 10), "grad_dtype")
def check_a_gradient_has_the_type_that_grad_dtype_says() -> None:
    for wide, scheme in ((torch.float32, NONE), (torch.float32, ALL), (torch.float64, NONE)):
        parameter = torch.nn.Parameter(torch.zeros(6, dtype=torch.bfloat16))
        parameter.grad_dtype = wide
        gradient = own().to(wide) * (1 + 2**-12)  # more digits than bfloat16 has
        got = averaged(parameter, gradient, gradient.clone(), scheme=scheme)
        assert got.dtype == wide
        torch.testing.assert_close(got, torch.arange(1.0, 7.0).to(wide) * MEAN * (1 + 2**-12))


@needs_torch((2, 10), "grad_dtype")
def check_a_gradient_of_another_type_is_rounded_to_the_type_that_was_declared() -> None:
    for narrow in (torch.bfloat16, torch.float16):
        parameter = torch.nn.Parameter(torch.zeros(6))
        parameter.grad_dtype = None  # any
        got = averaged(parameter, own(), own().to(narrow), own().to(narrow))
        assert got.dtype == narrow
        torch.testing.assert_close(got.float(), torch.arange(1.0, 7.0) * MEAN, rtol=1e-2, atol=0)


@needs_torch((2, 10), "grad_dtype")
def check_a_parameter_that_backward_does_not_reach_gets_zeros_of_the_right_type() -> None:
    parameter = torch.nn.Parameter(torch.zeros(6, dtype=torch.bfloat16))
    parameter.grad_dtype = torch.float32
    got = averaged(parameter, own() if RANK == 0 else None)  # type: ignore[arg-type]
    equal(got, torch.arange(1.0, 7.0) / SIZE)


def check_a_model_that_is_cast_after_it_was_wrapped_has_right_gradients() -> None:
    for dtype in (torch.bfloat16, torch.float64):
        model = torch.nn.Linear(3, 2, bias=False)
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.0))
        model.to(dtype)
        for _ in range(2):
            optimizer.zero_grad()
            model(torch.full((1, 3), RANK + 1.0, dtype=dtype)).sum().backward()
            optimizer.synchronize()
            equal(model.weight.grad, torch.full((2, 3), MEAN, dtype=dtype))
            with optimizer.skip_synchronize():
                optimizer.step()
        optimizer.close()


def check_a_gradient_that_one_rank_negates_lazily_is_averaged() -> None:
    for scheme in (NONE, ALL):
        gradient = lazily_negated(own()) if RANK == SIZE - 1 else own()
        got = averaged(torch.nn.Parameter(torch.zeros(6)), gradient, scheme=scheme)
        assert got is gradient
        torch.testing.assert_close(got.resolve_neg(), torch.arange(1.0, 7.0) * MEAN)


def check_a_gradient_that_autograd_negates_lazily_is_averaged() -> None:
    real, imaginary = (torch.nn.Parameter(torch.tensor([0.5])) for _ in range(2))
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD([real, imaginary], lr=0.0))
    for _ in range(2):
        optimizer.zero_grad()
        number = torch.complex(real, imaginary)
        number = number.conj() if RANK == SIZE - 1 else number
        (number * torch.tensor([1 + 2j])).real.sum().backward()
        optimizer.synchronize()
        expected = torch.tensor([(-2.0 * (SIZE - 1) + 2.0) / SIZE])
        torch.testing.assert_close(imaginary.grad.resolve_neg(), expected)
        with optimizer.skip_synchronize():
            optimizer.step()
    optimizer.close()


def check_a_gradient_whose_elements_share_memory_gets_memory_for_its_mean() -> None:
    window = (torch.arange(4.0) + RANK).as_strided((2, 3), (1, 1))
    row = (torch.arange(3.0) + RANK).expand(2, 3)
    for gradient in (window, row):
        expected = gradient.clone() - RANK + (SIZE - 1) / 2
        got = averaged(torch.nn.Parameter(torch.zeros(2, 3)), gradient, scheme=ALL)
        torch.testing.assert_close(got, expected)


def check_gradients_that_torch_lets_nobody_write_to_are_averaged() -> None:
    with torch.inference_mode():
        gradient = own()
    got = averaged(torch.nn.Parameter(torch.zeros(6)), gradient)
    torch.testing.assert_close(got, torch.arange(1.0, 7.0) * MEAN)
    nothing = torch._efficientzerotensor(6)
    got = averaged(torch.nn.Parameter(torch.zeros(6)), own() if RANK == 0 else nothing)
    torch.testing.assert_close(got, torch.arange(1.0, 7.0) / SIZE)


def check_a_parameter_whose_shape_changed_after_it_was_wrapped_is_refused() -> None:
    for shape in ((2,), (3, 4), (100,)):
        parameter = torch.nn.Parameter(torch.zeros(6))
        optimizer = hvd.DistributedOptimizer(torch.optim.SGD([parameter], lr=0.0))
        parameter.data = torch.zeros(shape)
        parameter.grad = torch.ones(shape)
        with expect(ValueError, f"has shape {shape}, expected (6,)", "hvd.DistributedOptimizer("):
            optimizer.step()
        optimizer.close()


def check_gradients_that_are_no_real_numbers_are_refused() -> None:
    parameter = torch.nn.Parameter(torch.zeros(6))
    if not hasattr(parameter, "grad_dtype"):
        return  # torch itself refuses such gradients
    parameter.grad_dtype = None  # any
    for dtype in (torch.complex64, torch.int64):
        with expect(ValueError, f"has the element type {dtype}", "parameter.grad.real.float()"):
            averaged(parameter, torch.ones(6, dtype=dtype))


def check_parameters_without_values_are_refused() -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import DTensor, Replicate

    mesh = init_device_mesh("cpu", (SIZE,))
    everywhere = DTensor.from_local(torch.zeros(6), mesh, [Replicate()], run_check=False)
    for values, kind in ((torch.zeros(6, device="meta"), "meta device"), (everywhere, "a DTensor")):
        parameter = torch.nn.Parameter(values)
        with expect(ValueError, "parameter one is ", kind, "expected a dense tensor"):
            averaged(parameter)


# ---- other doors ----


def check_a_bucket_that_a_wrapper_negates_lazily_is_averaged() -> None:
    model = torch.nn.Linear(6, 1, bias=False)
    ddp = DistributedDataParallel(model)

    def negated(state, bucket):  # type: ignore[no-untyped-def] # torch compares annotations
        bucket.set_buffer(lazily_negated(bucket.buffer()))
        return hvd.ddp_hook(state, bucket)

    ddp.register_comm_hook(hvd.PenstockState(ALL), negated)
    for _ in range(2):
        model.zero_grad()
        ddp(own().reshape(1, 6)).sum().backward()
        torch.testing.assert_close(model.weight.grad[0], torch.arange(1.0, 7.0) * MEAN)


def check_a_lazily_negated_buffer_is_reduced_as_fsdp2_reduces() -> None:
    for scheme in (None, ALL):
        whole = torch.arange(1.0, SIZE * 6 + 1)
        output = torch.empty(6)
        reducer = PenstockReduceScatter(scheme)
        buffer = lazily_negated(whole * (RANK + 1))
        reducer(output, buffer, dist.group.WORLD, dist.ReduceOp.AVG)
        torch.testing.assert_close(output, whole.chunk(SIZE)[RANK] * MEAN)


def check_a_lazily_negated_parameter_trains_apart() -> None:
    parameter = torch.nn.Parameter(lazily_negated(torch.arange(1.0, 7.0)))
    sgd = torch.optim.SGD([parameter], lr=1.0)
    optimizer = hvd.LocalSteps(sgd, every=1, outer=None, scheme=ALL)
    for _ in range(2):
        parameter.grad = torch.full((6,), RANK + 1.0)
        optimizer.step()
    torch.testing.assert_close(parameter.detach().resolve_neg(), torch.arange(1.0, 7.0) - 2 * MEAN)
    optimizer.close()


def check_operations_take_the_sign_of_a_lazily_negated_tensor() -> None:
    everyone = [torch.arange(1.0, SIZE * 6 + 1) * (rank + 1) for rank in range(SIZE)]
    mine, total = everyone[RANK], torch.stack(everyone).sum(0)
    calls: dict[Callable[[torch.Tensor], torch.Tensor], torch.Tensor] = {
        lambda t: hvd.allreduce(t, op=hvd.Sum): total,
        lambda t: hvd.allreduce_(t, op=hvd.Sum): total,
        lambda t: hvd.grouped_allreduce_([t], op=hvd.Sum)[0]: total,
        lambda t: hvd.allgather(t): torch.cat(everyone),
        lambda t: hvd.broadcast(t, SIZE - 1): everyone[-1],
        lambda t: hvd.broadcast_(t, SIZE - 1): everyone[-1],
        lambda t: hvd.alltoall(t): torch.cat([one.chunk(SIZE)[RANK] for one in everyone]),
        lambda t: hvd.reducescatter(t, op=hvd.Sum): total.chunk(SIZE)[RANK],
    }
    for call, expected in calls.items():
        equal(call(lazily_negated(mine)).resolve_neg(), expected)
        equal(call(lazily_negated(mine) if RANK == 0 else mine.clone()).resolve_neg(), expected)
    tensor = lazily_negated(mine)
    hvd.broadcast_parameters({"one": tensor}, SIZE - 1)
    equal(tensor.resolve_neg(), everyone[-1])


def check_parameters_are_broadcast_whatever_lies_in_their_memory() -> None:
    numbers = torch.arange(6.0) + RANK
    complex_numbers = torch.complex(numbers, numbers + 1)
    last = torch.arange(6.0) + SIZE - 1
    state = {
        "conjugate": complex_numbers.conj(),
        "imaginary part": complex_numbers.conj().imag,
        "with gaps": torch.stack([numbers, numbers], 1)[:, 0],
        "bool": numbers > RANK + 2,
    }
    hvd.broadcast_parameters(state, SIZE - 1)
    equal(state["conjugate"].resolve_conj(), torch.complex(last, -last - 1))
    equal(state["imaginary part"].resolve_neg(), -last - 1)
    equal(state["with gaps"], last)
    equal(state["bool"], last > SIZE + 1)


def check_parameters_that_cannot_receive_values_are_refused() -> None:
    refused = {
        "elements that share memory": torch.zeros(1).expand(6),
        "is quantized": torch.quantize_per_tensor(torch.ones(6), 1.0, 0, torch.qint8),
        "has the layout torch.sparse_coo": torch.eye(3).to_sparse(),
        "is on the meta device": torch.ones(6, device="meta"),
    }
    for words, tensor in refused.items():
        with expect(ValueError, "parameter one ", words, "expected"):
            hvd.broadcast_parameters({"one": tensor}, 0)


def check_results_lie_in_host_memory_whatever_the_default_device_is() -> None:
    mine = torch.full((SIZE, 2), float(RANK))
    with torch.device("meta"):
        gathered = hvd.allgather(mine)
        own_rows = hvd.reducescatter(mine, op=hvd.Sum)
        exchanged = hvd.alltoall(mine, splits=[1] * SIZE)[0]
        sent = hvd.broadcast_object({"rank": RANK}, 0)
    equal(gathered, torch.cat([torch.full((SIZE, 2), float(rank)) for rank in range(SIZE)]))
    equal(own_rows, torch.full((1, 2), float(sum(range(SIZE)))))
    equal(exchanged, torch.arange(float(SIZE))[:, None].expand(SIZE, 2).contiguous())
    assert sent == {"rank": 0}


if __name__ == "__main__":
    begin()
    run_checks(globals())
