"""Collective operations against values computed from the ranks' known inputs."""

from __future__ import annotations

import torch
from support import MOVABLE, REDUCIBLE, begin, equal, expect, run_checks, value

import penstock.torch as hvd

SHAPES = [(), (0,), (1,), (17,), (5, 3), (2, 3, 4), (1, 0, 3), (70001,)]


def check_topology() -> None:
    assert hvd.is_initialized() and hvd.is_homogeneous()
    assert 0 <= hvd.rank() < hvd.size()
    assert (hvd.local_rank(), hvd.local_size()) == (hvd.rank(), hvd.size())
    assert (hvd.cross_rank(), hvd.cross_size()) == (0, 1)
    assert hvd.allgather_object(hvd.rank()) == list(range(hvd.size()))


def check_allreduce_gives_sum_min_max_product_and_average() -> None:
    for dtype in REDUCIBLE:
        for shape in SHAPES:
            everyone = torch.stack([value(r, shape, dtype).double() for r in range(hvd.size())])
            own = value(hvd.rank(), shape, dtype)
            before = own.clone()
            expected = {
                hvd.Sum: everyone.sum(0),
                hvd.Min: everyone.min(0).values if everyone.numel() else everyone.sum(0),
                hvd.Max: everyone.max(0).values if everyone.numel() else everyone.sum(0),
                hvd.Product: everyone.prod(0),
            }
            for op, result in expected.items():
                equal(hvd.allreduce(own, op=op), result.to(dtype))
                equal(own, before)
            average = hvd.allreduce(own)
            exact = everyone.mean(0)
            if dtype.is_floating_point:
                # The division rounds once, in the type of the tensor.
                torch.testing.assert_close(
                    average.double(), exact, rtol=2 * torch.finfo(dtype).eps, atol=0
                )
            else:
                equal(average, exact.trunc().to(dtype))


def check_allreduce_in_place_and_async() -> None:
    everyone = sum(value(r, (5, 3), torch.float32) for r in range(hvd.size()))
    tensor = value(hvd.rank(), (5, 3), torch.float32)
    assert hvd.allreduce_(tensor, op=hvd.Sum) is tensor
    equal(tensor, everyone)
    tensors = [value(hvd.rank(), (5, 3), torch.float32) for _ in range(20)]
    handles = [hvd.allreduce_async_(t, op=hvd.Sum, name=f"t{i}") for i, t in enumerate(tensors)]
    handles.append(hvd.allreduce_async(value(hvd.rank(), (5, 3), torch.float32), op=hvd.Sum))
    for handle in handles[::-1]:
        equal(hvd.synchronize(handle), everyone)
        assert hvd.synchronize(handle) is None, "the second wait gives nothing"
    with expect(ValueError, "cleared"):
        hvd.poll(handles[0])
    assert hvd.synchronize(10**9) is None


def check_scale_factors() -> None:
    tensor = value(hvd.rank(), (5,), torch.float32)
    everyone = sum(value(r, (5,), torch.float32) for r in range(hvd.size()))
    equal(
        hvd.allreduce(tensor, op=hvd.Sum, prescale_factor=0.5, postscale_factor=4.0), everyone * 2
    )
    whole = value(hvd.rank(), (5,), torch.int32)
    scaled = sum(value(r, (5,), torch.int32).double().mul(2.5).trunc() for r in range(hvd.size()))
    equal(hvd.allreduce(whole, op=hvd.Sum, prescale_factor=2.5), scaled.to(torch.int32))


def check_compression_and_old_average() -> None:
    tensor = value(hvd.rank(), (7,), torch.float32)
    everyone = sum(value(r, (7,), torch.float32) for r in range(hvd.size()))
    equal(hvd.allreduce(tensor, op=hvd.Sum, compression=hvd.Compression.fp16), everyone)
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        equal(hvd.allreduce(tensor, average=False), everyone)
        assert [w.category for w in caught] == [DeprecationWarning]
    with expect(ValueError, "supersedes"):
        hvd.allreduce(tensor, average=True, op=hvd.Sum)


def check_allgather_of_ragged_rows() -> None:
    for dtype in MOVABLE:
        for rest in [(), (3,), (2, 0), (70, 11)]:
            parts = [value(r, (r * 2, *rest), dtype) for r in range(hvd.size())]
            equal(hvd.allgather(parts[hvd.rank()]), torch.cat(parts))
    with expect(ValueError, "scalar"):
        hvd.allgather(torch.tensor(1.0))
    handle = hvd.allgather_async(torch.full((hvd.rank() + 1,), hvd.rank()))
    equal(hvd.synchronize(handle), torch.cat([torch.full((r + 1,), r) for r in range(hvd.size())]))


def check_broadcast_from_every_root() -> None:
    for root in range(hvd.size()):
        for dtype in MOVABLE:
            for shape in [(), (0,), (17,), (5, 3)]:
                own = value(hvd.rank(), shape, dtype)
                equal(hvd.broadcast(own, root), value(root, shape, dtype))
                equal(own, value(hvd.rank(), shape, dtype))
                assert hvd.broadcast_(own, root) is own
                equal(own, value(root, shape, dtype))
    with expect(ValueError, "root_rank"):
        hvd.broadcast(torch.zeros(1), hvd.size())


def check_autograd() -> None:
    size, rank = hvd.size(), hvd.rank()
    x = torch.full((4,), float(rank + 1), requires_grad=True)
    hvd.allreduce(x, op=hvd.Sum).mul(float(rank)).sum().backward()
    equal(x.grad, torch.full((4,), float(sum(range(size)))))
    x = torch.full((4,), float(rank + 1), requires_grad=True)
    scaled = hvd.allreduce(x, op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    scaled.mul(float(rank)).sum().backward()
    equal(x.grad, torch.full((4,), 1.5 * sum(range(size))))
    x = torch.ones(rank + 1, 2, requires_grad=True)
    gathered = hvd.allgather(x)
    weights = torch.arange(float(gathered.numel())).reshape(gathered.shape)
    gathered.mul(weights * size).sum().backward()
    first = rank * (rank + 1) // 2
    torch.testing.assert_close(x.grad, weights[first : first + rank + 1] * size)
    x = torch.ones(3, requires_grad=True)
    root = size - 1
    hvd.broadcast(x, root).mul(float(rank)).sum().backward()
    expected = sum(range(size)) / size if rank == root else 0.0
    torch.testing.assert_close(x.grad, torch.full((3,), expected))


def check_average_of_integers_is_truncated() -> None:
    size = hvd.size()
    for dtype in (torch.int32, torch.int64):
        for offset in (-7, 0, 7):
            own = torch.arange(-5, 6, dtype=dtype) * 3 + offset + hvd.rank()
            everyone = sum((torch.arange(-5, 6) * 3 + offset + r).double() for r in range(size))
            equal(hvd.allreduce(own), (everyone / size).trunc().to(dtype))
    # Above 2^24, where a float32 would lose the last digits.
    big = torch.tensor([2**30 + 1, -(2**30) - 3], dtype=torch.int64) * size
    equal(hvd.allreduce(big), big)


def check_average_of_equal_tensors_is_exact_on_up_to_three_ranks() -> None:
    generator = torch.Generator().manual_seed(5)
    for dtype in REDUCIBLE:
        # Three times 80 fits into the eight bits of bfloat16.
        own = torch.randint(-80, 80, (17, 17), generator=generator).to(dtype)
        average = hvd.allreduce(own)
        if hvd.size() <= 3:
            equal(average, own)
        else:
            torch.testing.assert_close(average.double(), own.double(), rtol=1e-2, atol=0)


def check_half_precision_scales_in_float32() -> None:
    own = (torch.arange(1, 200) / 7).to(torch.float16)
    for factor in (1 / 3, 0.1, 2.7):
        scaled = (own.float() * torch.tensor(factor, dtype=torch.float32)).half()
        got = hvd.allreduce(own, op=hvd.Max, prescale_factor=factor)
        equal(got, scaled)
        equal(hvd.allreduce(own, op=hvd.Max, postscale_factor=factor), scaled)


def check_float32_scales_as_float32() -> None:
    generator = torch.Generator().manual_seed(6)
    own = torch.randn(5000, generator=generator)
    for factor in (1 / 3, 0.1, 2.7):
        scaled = own * torch.tensor(factor, dtype=torch.float32)
        equal(hvd.allreduce(own, op=hvd.Max, prescale_factor=factor), scaled)
        equal(hvd.allreduce(own, op=hvd.Max, postscale_factor=factor), scaled)


def check_what_cannot_be_reduced_or_moved_is_refused() -> None:
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.bool, torch.complex64):
        with expect(ValueError, "not supported"):
            hvd.allreduce(torch.ones(3).to(dtype))
    for move in (hvd.allgather, lambda t: hvd.broadcast(t, 0), hvd.alltoall):
        for dtype in (torch.bool, torch.complex64):
            with expect(ValueError, "not supported"):
                move(torch.ones(4, hvd.size()).to(dtype))
        with expect(ValueError, "contiguous"):
            move(torch.ones(4, 6).t())
    with expect(ValueError, "torch.Tensor"):
        hvd.allreduce([1.0])


def check_a_gradient_of_a_gradient() -> None:
    x = torch.full((3,), 2.0, requires_grad=True)
    y = hvd.allreduce(x**3)
    (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    gradient.sum().backward()
    torch.testing.assert_close(x.grad, torch.full((3,), 12.0))


if __name__ == "__main__":
    begin()
    run_checks(globals())
